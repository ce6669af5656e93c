"""The runs whose results are kept: file, command and machine of each.

A run is repeated with `--out benchmarks/results/FILE` behind its command; then `make docs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.report.results import Row, card, load


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one command.

    Attributes:
        key: its name in the table of figures.
        file: its path below benchmarks/results.
        command: the command after `python -m`.
        beside: a GPU that the run has and does not name.
    """

    key: str
    file: str
    command: str
    beside: str = ""

    def document(self) -> Row:
        """Read the results of the run."""
        return load(self.file)

    def card(self) -> str:
        """Name the GPU and the cores."""
        cores = card(self.document())
        return f"{self.beside}, {cores}" if self.beside else cores

    def date(self) -> str:
        """Return the day of the run; "" if the results do not name it."""
        machine = self.document().get("machine", {})
        return str(machine.get("date", ""))[:10]

    def commit(self) -> str:
        """Return the commit of the run; "" if the results do not name it."""
        machine = self.document().get("machine", {})
        return str(machine.get("commit", ""))[:7]


ENGINE = Run(
    "engine",
    "engine/engine_h200.json",
    "benchmarks.engine --data FOLDER --megabytes 64 --vocabularies gpt2 cl100k_base o200k_base",
)
KERNELS = Run(
    "kernels",
    "engine/kernels_h200.json",
    "benchmarks.engine --data FOLDER --megabytes 256 --only kernels"
    " --vocabularies gpt2 cl100k_base",
)
GIGATOKEN = Run(
    "gigatoken",
    "engine/gigatoken_h200.json",
    "benchmarks.engine --data FOLDER --megabytes 64 --only corpora"
    ' --vocabularies gpt2 cl100k_base --engines "gpu pinned" "gpu pinned, narrow ids" gigatoken',
)
CPU = Run(
    "cpu",
    "engine/cpu.json",
    "benchmarks.engine --engine cpu --data FOLDER --other-python PYTHON",
)
CPU_16_CORES = Run(
    "cpu_16_cores",
    "engine/cpu_16_cores.json",
    "benchmarks.engine --engine cpu --data FOLDER --cores 1 all",
)
BUS = Run(
    "bus",
    "engine/bus_h200.json",
    "benchmarks.engine.bus --data FOLDER --only gpt2 hyenadna dnabert2",
)
SLOW_TEXTS = Run(
    "slow_texts", "engine/slow_texts_h200.json", "benchmarks.engine.slow_texts --data FOLDER"
)
LONG_PERIODS = Run(
    "long_periods", "engine/long_periods_h200.json", "benchmarks.engine.long_periods"
)
SYMBOLS = Run("symbols", "dna/symbols_h200.json", "benchmarks.dna.symbols")
DNA = Run("dna", "dna/dna_h200.json", "benchmarks.dna --data FOLDER")
DNA_PROOF = Run(
    "dna_proof",
    "dna/dna_proof_h200.json",
    "benchmarks.dna --data FOLDER --prove-bases 1e9 --only-prove",
)
DNA_PROOF_CPU = Run(
    "dna_proof_cpu",
    "dna/dna_proof.json",
    "benchmarks.dna --data FOLDER --engine cpu --prove-bases 1e8 --only-prove",
)
EMBEDDING = Run("embedding", "dna/embedding_h200.json", "benchmarks.dna.embedding")
HTTP = Run("http", "service/http.json", "benchmarks.service.http")
RENDER = Run(
    "render",
    "service/render.json",
    "benchmarks.service.render --data FOLDER --model QWEN3 --plain-python PYTHON",
)
RENDER_TURNS = Run(
    "render_turns",
    "service/render_turns.json",
    "benchmarks.service.render.conversations --data FOLDER --model QWEN3 --vllm-rs PROGRAM"
    " --ids 72000",
)
FRONTENDS = Run(
    "frontends",
    "service/frontends.json",
    "benchmarks.service.frontends --data FOLDER --rounds 3 --seconds 2",
    beside="H200",
)
SEVERAL_GPUS = Run(
    "several_gpus",
    "service/several_gpus.json",
    "benchmarks.service.several_gpus --data FOLDER --gpus 1 2 --rounds 3 --seconds 0.4",
)
REGIONS = Run(
    "regions",
    "service/shared_regions.json",
    "benchmarks.service.shared_regions --data FOLDER --rounds 15",
)
BULK = Run("bulk", "service/bulk_apis.json", "benchmarks.service.bulk_apis")
BULK_ONE_CORE = Run(
    "bulk_one_core",
    "service/bulk_apis_1_core.json",
    "benchmarks.service.bulk_apis --cores 1 --rounds 5"
    ' --only TCP octet-stream "gRPC alone" "gRPC uint8"',
)
BULK_SIX_CORES = Run(
    "bulk_six_cores",
    "service/bulk_apis_6_cores.json",
    "benchmarks.service.bulk_apis --cores 6 --rounds 5"
    ' --only TCP octet-stream "gRPC alone" "gRPC uint8"',
)
LOAD = Run(
    "load", "service/load.json", "benchmarks.service.load --only beside --seconds 20 --rounds 5"
)
SOAK = Run(
    "soak",
    "service/soak.json",
    "benchmarks.service.soak --rounds 60 --round-s 60 --front-ends 2",
)
SOAK_GPU = Run(
    "soak_gpu",
    "service/soak_h200.json",
    "benchmarks.service.soak --rounds 9 --round-s 12 --long-bytes 20000000",
)
SLOW_CLIENTS = Run(
    "slow_clients", "service/slow_clients.json", "benchmarks.service.slow_clients --seconds 600"
)
FASTA = Run("fasta", "service/fasta.json", "benchmarks.service.long_fasta --gigabytes 10")
CORPUS = Run(
    "corpus",
    "corpus/two_cores.json",
    "benchmarks.corpus --data FOLDER --other-python PYTHON --megabytes 150 --part 6 --rounds 1",
)
CORPUS_COLD = Run(
    "corpus_cold",
    "corpus/cold_two_cores.json",
    "benchmarks.corpus.growth --data FOLDER --gigabytes 2 --cold --formats jsonl parquet",
)
CORPUS_GROWTH = Run(
    "corpus_growth",
    "corpus/growth_h200.json",
    "benchmarks.corpus.growth --data FOLDER --folder /dev/shm --no-digests --gpus 1 "
    "--gigabytes 4 16 64",
)
CORPUS_NODES = Run(
    "corpus_nodes",
    "corpus/ray_nodes.json",
    "benchmarks.corpus.cluster --data FOLDER --megabytes 300 --rounds 1",
)
TRAINING = Run(
    "training",
    "training/training.json",
    "benchmarks.training.trainers --data FOLDER --largest 16 --rounds 3",
)
TRAINING_GPU = Run(
    "training_gpu",
    "training/training_gpu.json",
    "benchmarks.training.trainers --data FOLDER --device cuda --rounds 1",
)
RUNS = (
    ENGINE,
    KERNELS,
    GIGATOKEN,
    CPU,
    CPU_16_CORES,
    BUS,
    SLOW_TEXTS,
    LONG_PERIODS,
    SYMBOLS,
    DNA,
    DNA_PROOF,
    DNA_PROOF_CPU,
    EMBEDDING,
    HTTP,
    RENDER,
    RENDER_TURNS,
    FRONTENDS,
    REGIONS,
    SEVERAL_GPUS,
    BULK,
    BULK_ONE_CORE,
    BULK_SIX_CORES,
    LOAD,
    SOAK,
    SOAK_GPU,
    SLOW_CLIENTS,
    FASTA,
    CORPUS,
    CORPUS_COLD,
    CORPUS_GROWTH,
    CORPUS_NODES,
    TRAINING,
    TRAINING_GPU,
)
