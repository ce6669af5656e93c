"""Times training: against limits of time, against `tokenizers`' trainer, and by corpus size.

    python -m benchmarks.training.trainers --data FOLDER [--largest 64] [--out FILE]
    python -m benchmarks.training.trainers --data FOLDER --device cuda      # see trainers_gpu.py

FOLDER holds the files of `corpora.FILES`. Merges are compared with `tokenizers`' before
anything is timed. Seconds are of the whole call of `train`, from arrays to a Vocabulary, in turns
with the other library; processor seconds stand beside, for a machine that has other work.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, trainers

from benchmarks.support.machine import machine
from benchmarks.support.timing import clocked, summary, take_turns
from benchmarks.training import trainers_gpu
from benchmarks.training.corpora import MILLION, NUM_MOTIFS, bank_of, copies, read_files
from gpu.runtime.cuda_device import CudaDevice
from vocabularies.motifs.bank import MotifBank
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import Training, train

RESULTS = Path(__file__).parents[1] / "results/training"
Row = dict[str, Any]


def main() -> None:
    """Prove, time, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--largest", type=int, help="millions of bases (64; with cuda 1,000)")
    parser.add_argument("--rounds", type=int, help="(5; with cuda 3)")
    parser.add_argument(
        "--out", type=Path, help="(training.json, training_gpu.json of results/training)"
    )
    arguments = parser.parse_args()
    corpora = read_files(arguments.data)
    if arguments.device == "cuda":
        plan = trainers_gpu.FULL
        largest = MILLION * (arguments.largest or 1000)
        bases = tuple(each for each in plan.bases if each <= largest)
        plan = replace(plan, bases=bases, rounds=arguments.rounds or plan.rounds)
        document = trainers_gpu.run(CudaDevice(), corpora, plan)
        out = RESULTS / "training_gpu.json"
    else:
        rounds = arguments.rounds or 5
        document = {
            "machine": machine(("numpy", "tokenizers", "ahocorasick-rs")),
            "asked": [*_with_limits(corpora, rounds)],
            "beside": [*_beside(corpora, rounds)],
            "growth": [*_growth(corpora["genomes"], arguments.largest or 64)],
        }
        out = RESULTS / "training.json"
    out = arguments.out or out
    out.write_text(json.dumps(document, indent=1) + "\n")


def _with_limits(corpora: dict[str, Corpus], rounds: int) -> Iterator[Row]:
    """Time the trainings that have a limit of time."""
    region = TrainingOptions(512, seed_region=(2, 8))
    yield _timed("matures, seeds as motifs", corpora["matures"], region, None, rounds, limit_s=2)
    bank = bank_of(corpora["genomes"])
    for options in (
        TrainingOptions(4096),
        TrainingOptions(4096, merge_harmful=True),
        TrainingOptions(4096, motif_weight=1, penalty_weight=0.5),
        TrainingOptions(4096 + NUM_MOTIFS, merge_rule="span_preserving"),
    ):
        name = f"genomes, {NUM_MOTIFS:,} motifs"
        yield _timed(name, corpora["genomes"], options, bank, min(3, rounds), limit_s=60)


def _timed(
    name: str,
    corpus: Corpus,
    options: TrainingOptions,
    bank: MotifBank | None,
    rounds: int,
    **more: float,
) -> Row:
    """Time some rounds of a training after a warm-up; a single round has no warm-up."""
    cpu: list[float] = []
    learnt: list[Training] = []
    work = _with_cpu(lambda: learnt.append(train(corpus, options, motifs=bank)), cpu)
    seconds = take_turns({"ours": clocked(work)}, rounds, warmups=int(rounds > 1))["ours"]
    training = learnt[-1]
    row = {
        "corpus": name,
        "bases": corpus.num_bases,
        "rule": options.merge_rule,
        "lambda": options.motif_weight,
        "mu": options.penalty_weight,
        "merge_harmful": options.merge_harmful,
        "merges": len(training.merges),
        "ending": training.ending,
        "compression": round(training.compression, 4),
        "wall": summary(seconds),
        "cpu": summary(cpu[-rounds:]),
        **more,
    }
    return _print_row(row)


def _with_cpu(work: Callable[[], object], cpu: list[float]) -> Callable[[], None]:
    def run() -> None:
        begin = process_time()
        work()
        cpu.append(process_time() - begin)

    return run


def _print_row(row: Row) -> Row:
    figures = {
        name: f"{value['median_s']:.3f} s ({value['min_s']:.3f} to {value['max_s']:.3f})"
        for name, value in row.items()
        if isinstance(value, dict)
    }
    print({**row, **figures}, flush=True)
    return row


def _beside(corpora: dict[str, Corpus], rounds: int) -> Iterator[Row]:
    """Time plain BPE of unsplit sequences beside `tokenizers` on all cores."""
    genome = corpora["genomes"]
    # More would take hours: the other trainer moves the whole sequence for each occurrence.
    front = 100_000
    cases = (
        ("matures", corpora["matures"], 512),
        ("matures", corpora["matures"], 4096),
        ("lambda", corpora["lambda"], 512),
        ("genomes, first 100,000 bases", Corpus(genome.data[:front], np.array([0, front])), 512),
    )
    for name, corpus, size in cases:
        options = TrainingOptions(size)
        sequences = [
            corpus.data[begin:end].tobytes().decode()
            for begin, end in zip(corpus.offsets[:-1], corpus.offsets[1:], strict=True)
        ]
        training = train(corpus, options)
        tokens = [token.decode() for token in training.vocabulary.tokens if token is not None]
        merges = [(tokens[merge.left], tokens[merge.right]) for merge in training.merges]
        if (tokens, merges) != _learnt_by_tokenizers(sequences, size):
            raise SystemExit(f"{name}, {size}: other merges than tokenizers'")
        cpu: dict[str, list[float]] = {"ours": [], "tokenizers": []}
        works = {
            "ours": lambda c=corpus, o=options: train(c, o),
            "tokenizers": lambda s=sequences, n=size: _learn(s, n),
        }
        runs = {key: clocked(_with_cpu(work, cpu[key])) for key, work in works.items()}
        samples = take_turns(runs, rounds)
        row: Row = {"corpus": name, "bases": corpus.num_bases, "ids": size, "equal": True}
        for key in works:
            row |= {f"{key}_wall": summary(samples[key]), f"{key}_cpu": summary(cpu[key][1:])}
        yield _print_row(row)


def _learn(sequences: list[str], size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=["[UNK]"], show_progress=False
    )
    tokenizer.train_from_iterator(sequences, trainer)
    return tokenizer


def _learnt_by_tokenizers(
    sequences: list[str], size: int
) -> tuple[list[str], list[tuple[str, str]]]:
    model = json.loads(_learn(sequences, size).to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [(left, right) for left, right in model["merges"]]


def _growth(genome: Corpus, largest: int) -> Iterator[Row]:
    """Time trainings of 4,096 tokens on growing corpora: copies of genomes with a tenth changed."""
    bank = bank_of(genome)
    millions = 1
    while millions <= largest:
        corpus = copies(genome, millions * MILLION)
        for motifs in (None, bank):
            options = TrainingOptions(4096, motif_weight=1, penalty_weight=0.5)
            row = _timed("copies", corpus, options, motifs, 1 if millions > 2 else 3)
            row["motifs"] = 0 if motifs is None else len(motifs)
            row["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            yield row
        millions *= 4


if __name__ == "__main__":
    main()
