"""Writes the tables of docs/performance.md from the results.

    python -m benchmarks.report.figures

The page's prose is written by hand; the text between the two marks of a table is replaced. If
a result lacks a figure, the command fails and leaves the table as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import runs
from benchmarks.report.charts import short
from benchmarks.report.cpu_figures import cpu_table
from benchmarks.report.marked_tables import fill
from benchmarks.report.results import (
    Measured,
    Row,
    exactly,
    gigas,
    of_rounds,
    only,
    rate,
    seconds,
    select,
)
from benchmarks.report.runs import RUNS, Run

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
CORPORA = {"english": "English", "code": "code", "languages": "20 languages"}
NAMES = {
    "gpt2": "GPT-2",
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
    "hyenadna": "HyenaDNA",
    "nt_v2": "NT v2",
    "mtdna6": "mtDNA 6-mers",
    "dnabert2": "DNABERT-2",
    "gena_lm_t2t_32k": "GENA-LM",
    "motifs": "BPE with motifs",
}
COMPETITORS = ("gigatoken", "fastokens", "tiktoken", "tokenizers")
DNA_COMPETITORS = {
    "bytes.translate": "bytes.translate",
    "transformers EsmTokenizer": "transformers",
    "tokenizers, all cores": "tokenizers",
}


@dataclass(frozen=True, slots=True)
class Beside:
    """A figure that another program or a plain copy reaches on the same machine."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the table.

    Attributes:
        limit: the limit of the machine; a figure may be shown as a share of it.
        competitor: the best other program for the same task.
    """

    run: Run
    what: str
    unit: str
    ours: Measured
    limit: Beside | None = None
    competitor: Beside | None = None

    def line(self) -> str:
        """Write the line as Markdown."""
        factor, unit = _scale(self.ours.value) if self.unit == "s" else (1.0, self.unit)
        ours, spread, limit, competitor = self.ours.times(factor), "", "", ""
        if ours.low != ours.high:
            spread = f"{short(ours.low)}–{short(ours.high)}"
        if self.limit is not None:
            share = 100 * self.ours.value / self.limit.value
            limit = f"{short(factor * self.limit.value)} {self.limit.name} ({share:.0f} %)"
        if self.competitor is not None:
            competitor = f"{short(factor * self.competitor.value)} {self.competitor.name}"
        cells = (
            self.what,
            f"**{short(ours.value)}** {unit}",
            spread,
            limit,
            competitor,
            self.run.card(),
            f"[{self.run.key}](#runs)",
        )
        return f"| {' | '.join(cells)} |"


HEAD = """\
| what | warptok | spread | limit (share of it) | best other | machine | run |
| --- | --- | --- | --- | --- | --- | --- |"""
RUNS_HEAD = """\
| run | repeat with `python -m …` | result | date, commit |
| --- | --- | --- | --- |"""


def figure_table() -> str:
    """Write the table of all figures, with a line in bold before each group."""
    groups = {
        "Text on the GPU": _text(),
        "One call": _calls(),
        "DNA": _dna(),
        "The service": _service(),
        "Corpora, file to shards": _corpora(),
        "Learning vocabularies": _learning(),
        "Ids compared before anything is timed, none of which differs": _proved(),
    }
    lines = [HEAD]
    for name, figures in groups.items():
        lines.append(f"| **{name}** | | | | | | |")
        lines += [figure.line() for figure in figures]
    return "\n".join(lines)


def run_table() -> str:
    """Write the table of the runs that measured the figures."""
    lines = [RUNS_HEAD]
    for run in RUNS:
        when = ", ".join(filter(None, (run.date(), run.commit())))
        result = f"[{run.file}](../benchmarks/results/{run.file})"
        lines.append(f"| {run.key} | `{run.command}` | {result} | {when} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """Return the page with new contents in its tables.

    Raises:
        ValueError: the page lacks the marks of a table.
    """
    tables = {
        "figures": figure_table(),
        "cpu": cpu_table(runs.CPU),
        "cpu_16_cores": cpu_table(runs.CPU_16_CORES),
        "runs": run_table(),
    }
    return fill(page, "docs/performance.md", tables)


def main() -> None:
    """Write the tables."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("written: docs/performance.md")


def _scale(time_s: float) -> tuple[float, str]:
    """Return the factor and the unit in which a time is a readable number."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if factor * time_s < 1000:
            return factor, unit
    return 1.0, "s"


def _text() -> Iterator[Figure]:
    kernels = runs.KERNELS.document()
    for vocabulary in ("gpt2", "cl100k_base"):
        for corpus, name in (*CORPORA.items(), ("hostile", "hostile text")):
            row = only(kernels["kernels"], corpus=corpus, vocabulary=vocabulary)
            ours = gigas(row["bytes"], row["seconds"])
            what = f"{NAMES[vocabulary]}, {name}, device to device"
            yield Figure(runs.KERNELS, what, "GB/s", ours)
    engine = runs.ENGINE.document()
    for corpus, name in CORPORA.items():
        for way, words in (("on_device", "ids left on the device"), ("uint16", "16-bit ids back")):
            row = only(engine["host"], corpus=corpus, vocabulary="gpt2", way=way)
            bus = Beside("PCIe", row["copies_gb_per_s"]["host_to_device"])
            ours = gigas(row["bytes"], row["seconds"])
            what = f"GPT-2, {name}, stream from pinned memory, {words}"
            yield Figure(runs.ENGINE, what, "GB/s", ours, bus)
    slow = runs.SLOW_TEXTS.document()["slow_texts"]
    for size in (1, 16):
        rows = select(slow, bytes=size << 20)
        num_texts = len({row["text"] for row in slow})
        least = exactly(min(row["gb_per_s"] for row in rows))
        if size == 1:
            what = f"slowest of {num_texts} texts made to be slow, 1 MiB, device to device"
        else:
            what = f"the slowest of those again, {size} MiB"
        yield Figure(runs.SLOW_TEXTS, what, "GB/s", least)
    periods = runs.LONG_PERIODS.document()["long_periods"]
    worst = min(
        select(periods, bytes=10 << 20), key=lambda row: row["bytes"] / row["seconds"]["median_s"]
    )
    yield Figure(
        runs.LONG_PERIODS,
        "text and vocabulary both made to be slow, 10 MiB, device to device",
        "GB/s",
        gigas(worst["bytes"], worst["seconds"]),
    )


def _calls() -> Iterator[Figure]:
    document = runs.GIGATOKEN.document()
    for vocabulary in ("gpt2", "cl100k_base"):
        for corpus, name in CORPORA.items():
            rows = select(document["corpora"], vocabulary=vocabulary, corpus=corpus)
            row = only(rows, engine="gpu pinned")
            other = only(rows, engine="gigatoken")
            yield Figure(
                runs.GIGATOKEN,
                f"GPU: {NAMES[vocabulary]}, {name}, 64 MiB of pinned memory, 32-bit ids back",
                "GB/s",
                gigas(row["bytes"], row["warm"]["seconds"]),
                Beside("the same copies", row["copies"]["gb_per_s"]),
                Beside("gigatoken", other["warm"]["gb_per_s"]),
            )
    engine = runs.ENGINE.document()
    for num_rows, row_bytes, name in (
        (1, 200, "one text of 200 bytes"),
        (64, 1000, "64 texts of 1 kB"),
        (1024, 2000, "1,024 texts of 2 kB"),
        (65536, 512, "65,536 texts of 512 bytes"),
        (1, 100_000_000, "one text of 100 MB"),
    ):
        shape = select(engine["shapes"], vocabulary="gpt2", rows=num_rows, row_bytes=row_bytes)
        whole = max(row["bytes"] for row in shape)
        rows = [row for row in shape if row["bytes"] == whole and row["cores"] == "all"]
        for row in select(rows, engine="gpu encode_ids"):
            yield Figure(
                runs.ENGINE,
                f"GPU: GPT-2, {name}",
                "s",
                seconds(row["warm"]["seconds"]),
                competitor=_quickest(rows),
            )
    yield from _bulk_calls()
    for kernels, name in (("cached", "kernels compiled before"), ("compiled", "nothing compiled")):
        row = only(engine["starts"], vocabulary="gpt2", kernels=kernels)
        what = f"from the start of Python to GPT-2's first ids, {name}"
        yield Figure(runs.ENGINE, what, "s", seconds(row["seconds"]))


def _bulk_calls() -> Iterator[Figure]:
    rows = select(runs.BUS.document()["results"], rows=8192)
    for vocabulary, corpus, call, name in (
        ("gpt2", "english", "encode, list of strings", "GPT-2, English, a list of 8,192 str"),
        ("gpt2", "english", "count, pinned", "GPT-2, English, count only"),
        ("gpt2", "english", "encode, spans, pinned", "GPT-2, English, ids and offsets"),
        ("gpt2", "english", "decode, int32, pinned", "GPT-2, English, ids to text"),
        ("hyenadna", "bases", "windows, pinned", "HyenaDNA, windows"),
    ):
        row = only(rows, vocabulary=vocabulary, corpus=corpus, call=call)
        yield Figure(
            runs.BUS,
            f"GPU: {name}",
            "GB/s in",
            gigas(row["bytes_in"], row["seconds"]),
            Beside("the same copies", gigas(row["bytes_in"], row["copies"]).value),
        )


def _fastest(rows: list[Row]) -> Beside | None:
    others = [row for row in rows if row["engine"] in COMPETITORS and "warm" in row]
    best = max(others, key=lambda row: float(row["warm"]["gb_per_s"]), default=None)
    return None if best is None else Beside(best["engine"], best["warm"]["gb_per_s"])


def _quickest(rows: list[Row]) -> Beside | None:
    best = _fastest(rows)
    if best is None:
        return None
    row = only(rows, engine=best.name)
    return Beside(best.name, row["warm"]["seconds"]["median_s"])


def _dna() -> Iterator[Figure]:
    symbols = runs.SYMBOLS.document()
    copied = symbols["copy_bytes_a_second"]
    for vocabulary in ("hyenadna", "mtdna6", "nt_v2", "dnabert2", "motifs"):
        row = only(symbols["results"], sequences="bases", vocabulary=vocabulary, bits=32)
        yield _device_to_device(row, copied, NAMES[vocabulary])
    row = only(symbols["results"], sequences="N and soft masking", vocabulary="nt_v2", bits=32)
    yield _device_to_device(row, copied, "NT v2, N and soft masking")
    results = select(runs.DNA.document()["results"], shape="8,192 x 512")
    for way, words, vocabularies in (
        (
            "gpu engine, pinned to device",
            "GPU, ids left on the device",
            ("hyenadna", "nt_v2", "mtdna6", "dnabert2", "gena_lm_t2t_32k"),
        ),
        ("gpu engine, bytes", "GPU, ids in memory", ("hyenadna", "nt_v2", "dnabert2")),
    ):
        for vocabulary in vocabularies:
            rows = select(results, vocabulary=vocabulary)
            row = only(rows, way=way)
            bus = Beside("PCIe", only(rows, way="copy host_to_device")["gb_per_s"])
            others = [
                Beside(name, each["gb_per_s"])
                for other, name in DNA_COMPETITORS.items()
                for each in select(rows, way=other)
            ]
            yield Figure(
                runs.DNA,
                f"{words}: {NAMES[vocabulary]}, 8,192 × 512 bases",
                "G bases/s",
                gigas(row["bases"], row["seconds"]),
                bus,
                max(others, key=lambda other: other.value, default=None),
            )
    rows = select(runs.EMBEDDING.document()["rows"], shape=[32768, 512])
    ours, limit, other = (
        only(rows, case=case)["in_a_row_per_s"] / 1e9
        for case in (
            "pinned bytes",
            "writing embeddings, 1 micro-batch",
            "pinned bytes, torch's embedding",
        )
    )
    yield Figure(
        runs.EMBEDDING,
        "DNATok's embeddings of 32,768 × 512 bases",
        "G ids/s",
        exactly(ours),
        Beside("writing them", limit),
        Beside("torch's embedding", other),
    )


def _device_to_device(row: Row, copied: float, name: str) -> Figure:
    """Make the figure of a run from device to device; its limit is a copy of the bytes it moves."""
    # A base is a byte of text; what else is moved are ids of four bytes.
    bases = row["moved"] - 4 * row["num_ids"]
    limit = Beside("copy", bases * copied / row["moved"] / 1e9)
    ours = gigas(bases, row["seconds"])
    return Figure(runs.SYMBOLS, f"{name}, device to device", "G bases/s", ours, limit)


def _service() -> Iterator[Figure]:
    http = runs.HTTP.document()["rounds"]
    for texts, connections in ((1, 64), (1, 512), (32, 64), (32, 512)):
        rounds = select(http, texts=texts, connections=connections)
        name = "a text" if texts == 1 else f"{texts} texts"
        load = f"JSON, {name} of 200 characters, {connections} connections"
        for unit, field, words in (
            ("requests/s", "requests_per_s", ""),
            ("µs", "cpu_us_per_request", ", CPU a request"),
            ("ms", "p99_ms", ", p99"),
        )[: 3 if connections == 64 else 1]:
            yield Figure(
                runs.HTTP,
                f"{load}{words}",
                unit,
                of_rounds(each["warptok"][field] for each in rounds),
                competitor=Beside(
                    "plain FastAPI", of_rounds(each["plain"][field] for each in rounds).value
                ),
            )
    yield from _chats()
    yield from _next_turns()
    fronts = runs.FRONTENDS.document()["rows"]
    for number in (1, 8):
        rounds = select(fronts, frontends=number)
        name = "1 front end" if number == 1 else f"{number} front ends"
        small = of_rounds(each["small"]["requests_per_s"] for each in rounds)
        yield Figure(runs.FRONTENDS, f"{name}, a text a request", "requests/s", small)
        arrow = of_rounds(each["arrow"]["gb_per_s"] for each in rounds)
        yield Figure(runs.FRONTENDS, f"{name}, Arrow streams", "GB/s", arrow)
    yield from _shared_memory()
    yield from _bulk_bodies()
    beside = runs.LOAD.document()["beside"]["rounds"]
    for field, words in (("without", "alone"), ("with", "beside texts of 100 MB")):
        p99 = of_rounds(each[field]["p99_ms"] for each in beside)
        yield Figure(runs.LOAD, f"1 kB requests at 100/s {words}, p99", "ms", p99)
    for run in (runs.SOAK, runs.SOAK_GPU):
        soak = run.document()
        lost = exactly(soak["requests"] - soak["received"] + len(soak["failures"]))
        yield Figure(run, f"lost of {soak['requests']:,} requests under faults", "requests", lost)
    modes = runs.SLOW_CLIENTS.document()["modes"]
    for mode in ("slow heads", "slow bodies", "slow reading"):
        row, without = modes[mode], modes[f"before {mode}"]
        what = f"10,000 connections of {mode}"
        yield Figure(
            runs.SLOW_CLIENTS,
            f"small requests beside {what}, p99",
            "ms",
            exactly(row["honest"]["p99_ms"]),
            Beside("without", without["honest"]["p99_ms"]),
        )
        slowest = exactly(row["readyz"]["max_ms"])
        yield Figure(runs.SLOW_CLIENTS, f"/readyz beside {what}, slowest", "ms", slowest)
    peak = exactly(runs.FASTA.document()["rss_mb"]["peak"])
    yield Figure(runs.FASTA, "memory while 10 GB of FASTA pass, most", "MB", peak)


def _chats() -> Iterator[Figure]:
    document = runs.RENDER.document()
    for row in document["lengths"]:
        name = f"chats of {row['ids'] // 1000},000 ids"
        for connections in (1, 8, 64):
            rounds = select(document["rounds"], ids=row["ids"], connections=connections)
            load = f"{name}, {connections} connection{'s' if connections > 1 else ''}"
            fields = [("requests/s", "requests_per_s", 1.0, "")]
            if connections == 1:
                fields.append(("ms", "p50_ms", 1.0, ", p50"))
            if connections == 8:
                fields.append(("ms", "p99_ms", 1.0, ", p99"))
                fields.append(("ms", "cpu_us_per_request", 1e-3, ", CPU a request"))
            for unit, field, factor, words in fields:
                ours = of_rounds(factor * each["warptok"][field] for each in rounds)
                plain = of_rounds(factor * each["plain"][field] for each in rounds)
                other = Beside("plain FastAPI", plain.value)
                yield Figure(runs.RENDER, f"{load}{words}", unit, ours, competitor=other)


def _next_turns() -> Iterator[Figure]:
    run = runs.RENDER_TURNS
    document = run.document()
    for num_ids in dict.fromkeys(row["ids"] for row in document["turns"]):
        rounds = select(document["turns"], ids=num_ids)
        for name, words in (("warptok", ""), ("without cache", ", without the cache")):
            ours = of_rounds(row[name]["p50_ms"] for row in rounds)
            other = Beside("vllm-rs", of_rounds(row["vllm-rs"]["p50_ms"] for row in rounds).value)
            what = f"the next turn of chats of {num_ids // 1000},000 ids, p50{words}"
            yield Figure(run, what, "ms", ours, competitor=other)
    for num_ids in dict.fromkeys(row["ids"] for row in document["rates"]):
        rounds = select(document["rates"], ids=num_ids)
        for quantile in ("p50", "p99"):
            field = f"{quantile}_ms"
            ours = of_rounds(row["without cache"][field] for row in rounds)
            other = Beside("vllm-rs", of_rounds(row["vllm-rs"][field] for row in rounds).value)
            what = (
                f"new chats of {num_ids // 1000},000 ids at {rounds[0]['rate']:.0f}/s, {quantile}"
            )
            yield Figure(run, what, "ms", ours, competitor=other)


def _shared_memory() -> Iterator[Figure]:
    document = runs.REGIONS.document()
    for kind, limit, name in (
        ("system", Beside("PCIe", document["alone"]["host_to_device"]["gb_per_s"]), "the host's"),
        (
            "cuda",
            Beside("the engine alone", document["alone"]["device_to_device"]["gb_per_s"]),
            "the GPU's",
        ),
    ):
        for callers in (1, 2):
            rows = select(document["regions"], kind=kind, dtype="int32", callers=callers)
            row = only(rows)
            amount = row["gb_per_s"] * row["median_s"]
            who = "1 caller" if callers == 1 else f"{callers} callers"
            what = f"shared memory, {name}, 1 GiB of English, {who}"
            yield Figure(runs.REGIONS, what, "GB/s", rate(amount, row), limit)
    # In the first round of each number of GPUs, memory is page-locked.
    rounds = select(runs.SEVERAL_GPUS.document()["rounds"])[2:]
    for kind, name in (("host", "the host's"), ("device", "each GPU's own")):
        for count, gpus in ((1, "one GPU"), (2, "two GPUs")):
            rows = select(rounds, gpus=count)
            copies = of_rounds(row["copies"] for row in rows).value
            yield Figure(
                runs.SEVERAL_GPUS,
                f"shared memory, {name}, {gpus}",
                "GB/s",
                of_rounds(row[kind] for row in rows),
                Beside("PCIe", copies) if kind == "host" else None,
            )


def _bulk_bodies() -> Iterator[Figure]:
    for run, cores in ((runs.BULK_ONE_CORE, "a core"), (runs.BULK_SIX_CORES, "6 cores")):
        apis = run.document()["apis"]
        for api, limit, name in (
            ("octet-stream uint8", "TCP alone", "octet-stream"),
            ("gRPC uint8", "gRPC alone", "gRPC"),
        ):
            row = only(apis, api=api)
            yield Figure(
                run,
                f"{name}, HyenaDNA, 8-bit ids, {cores} for the server",
                "GB/s",
                gigas(row["bytes"], row["seconds"]),
                Beside(limit, only(apis, api=limit)["gb_per_s"]),
            )
    apis = runs.BULK.document()["apis"]
    for api, name in (("Arrow uint8", "Arrow stream"), ("FASTA uint8", "FASTA")):
        row = only(apis, api=api)
        ours = gigas(row["bytes"], row["seconds"])
        yield Figure(runs.BULK, f"{name}, HyenaDNA, 8-bit ids", "GB/s", ours)
    row, plain = only(apis, api="JSON http"), only(apis, api="JSON plain")
    yield Figure(
        runs.BULK,
        "JSON, HyenaDNA, 1 MiB",
        "GB/s",
        gigas(row["bytes"], row["seconds"]),
        competitor=Beside("plain FastAPI", plain["gb_per_s"]),
    )


def _corpora() -> Iterator[Figure]:
    document = runs.CORPUS.document()
    limits = document["limits_mb_per_s"]
    for kind, alone in (
        ("jsonl", "read jsonl"),
        ("jsonl.zst", "unpack jsonl.zst"),
        ("parquet", "read the column of parquet"),
    ):
        figures = select(document["figures"], kind=kind)
        ours = only(figures, who="warptok")
        others = [row for row in figures if row is not ours]
        best = max(others, key=lambda row: max(row["mb_per_s"]))
        sparing = max(others, key=lambda row: float(row["mb_per_cpu_s"]))
        yield Figure(
            runs.CORPUS,
            f"{kind} of English to Megatron's files",
            "MB/s",
            of_rounds(ours["mb_per_s"]),
            limit=Beside("reading, 1 core", limits[alone]),
            competitor=Beside(best["who"], max(best["mb_per_s"])),
        )
        yield Figure(
            runs.CORPUS,
            f"{kind} of English, a second of a core",
            "MB",
            exactly(ours["mb_per_cpu_s"]),
            competitor=Beside(sparing["who"], sparing["mb_per_cpu_s"]),
        )
    most = max(row["peak_bytes"] for row in select(document["figures"], who="warptok"))
    yield Figure(runs.CORPUS, "most memory of that", "MB", exactly(most / 1e6))
    for row in runs.CORPUS_COLD.document()["rows"]:
        yield Figure(
            runs.CORPUS_COLD,
            f"{row['format']} of English, 2 GB on a disk and in no cache, with the start",
            "MB/s",
            exactly(row["gb_per_s"] * 1e3),
            limit=Beside("reading", row["limit_gb_per_s"] * 1e3),
        )
    for row in runs.CORPUS_GROWTH.document()["rows"]:
        yield Figure(
            runs.CORPUS_GROWTH,
            f"{row['text_bytes'] / 1e9:.0f} GB of English JSONL in memory, one GPU, with the start",
            "GB/s",
            exactly(row["gb_per_s"]),
            limit=Beside("writing", row["writing_limit_gb_per_s"]),
        )
    figures = runs.CORPUS_NODES.document()["figures"]
    alone = only(figures, nodes=1)["tokens_per_part_cpu_s"] / 1e6
    for row in figures[1:]:
        yield Figure(
            runs.CORPUS_NODES,
            f"{row['nodes']} nodes of Ray on one machine, a second of a core",
            "M tokens",
            exactly(row["tokens_per_part_cpu_s"] / 1e6),
            limit=Beside("1 node", alone),
        )


def _learning() -> Iterator[Figure]:
    document = runs.TRAINING.document()
    for row in document["beside"]:
        yield Figure(
            runs.TRAINING,
            f"CPU: {row['corpus']}, {row['ids']:,} ids, plain BPE",
            "s",
            seconds(row["ours_wall"]),
            competitor=Beside("tokenizers", row["tokenizers_wall"]["median_s"]),
        )
    row = only(
        document["asked"], merge_harmful=True, rule="global", corpus="genomes, 10,000 motifs"
    )
    what = "CPU: E. coli and a yeast chromosome, 4,096 ids, 10,000 motifs"
    yield Figure(runs.TRAINING, what, "s", seconds(row["wall"]))
    device = runs.TRAINING_GPU.document()
    for bases in (16_000_000, 1_000_000_000):
        row = only(device["growth"], bases=bases, motifs=0)
        yield Figure(
            runs.TRAINING_GPU,
            f"GPU: {bases // 1_000_000:,} M bases, 4,096 ids, plain BPE",
            "s",
            seconds(row["wall"]),
        )


def _proved() -> Iterator[Figure]:
    engine = sum(row["num_bytes"] for row in runs.ENGINE.document()["proofs"])
    yield Figure(runs.ENGINE, "text, GPU and CPU", "GB", exactly(engine / 1e9))
    for run, name in ((runs.CPU, "text and bases, CPU"), (runs.CPU_16_CORES, "text, CPU")):
        cpu = sum(proof["bytes"] for proof in run.document()["proofs"])
        yield Figure(run, name, "GB", exactly(cpu / 1e9))
    chats = sum(row["proved_chats"] for row in runs.RENDER.document()["lengths"])
    yield Figure(runs.RENDER, "chats with tools, Qwen3's template", "chats", exactly(chats))
    for run, name in ((runs.DNA_PROOF, "DNA, GPU"), (runs.DNA_PROOF_CPU, "DNA, CPU")):
        bases = sum(row["bases"] for row in run.document()["proofs"])
        yield Figure(run, f"{name}, five vocabularies", "G bases", exactly(bases / 1e9))


if __name__ == "__main__":
    main()
