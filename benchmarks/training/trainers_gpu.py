"""Compares every merge on a GPU with the processor's, then times trainings up to 1 G bases.

Run by `python -m benchmarks.training.trainers --device cuda`. Seconds are of the whole call of
`train`, from
arrays to a Vocabulary, in three parts: `host` until the corpus lies there as ids, motifs found;
`copied` until it is on the device and its pairs are counted; `merged` until the end. The first call
of a size stands apart, that of the smallest one with the kernels' compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.dna.symbols import copy_rate
from benchmarks.support.gpu_clock import Clock
from benchmarks.support.machine import device_facts, machine
from benchmarks.support.timing import Seconds, summary
from benchmarks.training.corpora import MILLION, bank_of, copies
from gpu.runtime.device import Device
from gpu.training.merger import DeviceMerger
from vocabularies.motifs.bank import MotifBank
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.layout import Layout
from vocabularies.training.merger import Ids, Merge
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import Training, train

Row = dict[str, Any]
PACKAGES = ("numpy", "ahocorasick-rs", "warptok")
LIMIT_BASES, LIMIT_S = 1_000 * MILLION, 60
BYTES_A_TOKEN, BYTES_PLACED = 2, 6  # With where it lies.
COPY_BYTES = 1 << 30
WEIGHTS: dict[str, Any] = {"motif_weight": 1, "penalty_weight": 0.5}


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of the trainings that are compared and timed.

    Attributes:
        ids: the number of ids of every vocabulary except the largest.
        many: the number of ids of the largest vocabulary.
        motifs: the number of motifs.
        proved: bases of the largest corpus that the processor learns from as well.
        bases: bases of each timed corpus, and of the largest corpus with motifs.
        rounds: calls of each size after the first.
    """

    ids: int = 4096
    many: int = 32_768
    motifs: int = 10_000
    proved: int = 16 * MILLION
    bases: tuple[int, ...] = tuple(number * MILLION for number in (1, 4, 16, 64, 256, 1000))
    largest_with_motifs: int = 16 * MILLION
    rounds: int = 3


FULL = Plan()


class Moving(DeviceMerger):
    """A merger that counts the tokens which merges read and write.

    Attributes:
        moved_tokens: the tokens of all merges so far.
    """

    moved_tokens = 0

    def merge(self, merge: Merge, merged_id: int) -> None:
        """See DeviceMerger."""
        self.moved_tokens += self.num_tokens
        super().merge(merge, merged_id)
        self.moved_tokens += self.num_tokens


@dataclass(slots=True)
class Watch:
    """A device on which `train` learns, with the times and memory of the last call.

    Attributes:
        laid_out, counted: the times at which the corpus was laid out and counted.
        device_bytes: the device memory of the call.
        merger: the merger of the call.
    """

    device: Device
    laid_out: float = 0.0
    counted: float = 0.0
    device_bytes: int = 0
    merger: Moving | None = None

    def __call__(
        self, layout: Layout, options: TrainingOptions, first: Ids, lengths: list[int]
    ) -> DeviceMerger:
        """See vocabularies.training.merger.MakeMerger."""
        free = self.device.info.free_bytes
        self.laid_out = perf_counter()
        merger = self.merger = Moving(self.device, layout, options, first, lengths)
        self.counted = perf_counter()
        self.device_bytes = free - self.device.info.free_bytes
        return merger


@dataclass(slots=True)
class _Times:
    """Seconds of the calls of one size."""

    host: Seconds = field(default_factory=list)
    copied: Seconds = field(default_factory=list)
    merged: Seconds = field(default_factory=list)
    whole: Seconds = field(default_factory=list)


def learn_on(
    watch: Watch, corpus: Corpus, options: TrainingOptions, bank: MotifBank | None, times: _Times
) -> Training:
    """Train once on the device, and add the seconds to `times`."""
    begin = perf_counter()
    training = train(corpus, options, motifs=bank, make_merger=watch)
    end = perf_counter()
    times.host.append(watch.laid_out - begin)
    times.copied.append(watch.counted - watch.laid_out)
    times.merged.append(end - watch.counted)
    times.whole.append(end - begin)
    return training


def run(device: Device, corpora: dict[str, Corpus], plan: Plan = FULL) -> Row:
    """Compare the merges, then time trainings; return the results.

    Raises:
        SystemExit: a merge differs; nothing is timed then.
    """
    copied = copy_rate(device, Clock(device), COPY_BYTES)
    return {
        "machine": device_facts(device.info) | machine(PACKAGES),
        "copy_bytes_a_second": copied,
        "proved": [*_proofs(device, corpora, plan)],
        "growth": [*_growth(device, corpora["genomes"], plan)],
    }


def _cases(
    corpora: dict[str, Corpus], plan: Plan
) -> Iterator[tuple[str, Corpus, TrainingOptions, MotifBank | None]]:
    """List corpora with options of every kind."""
    genomes, ids = corpora["genomes"], plan.ids
    bank = bank_of(genomes, plan.motifs)
    yield "matures", corpora["matures"], TrainingOptions(512, seed_region=(2, 8)), None
    yield "matures", corpora["matures"], TrainingOptions(ids), None
    yield "lambda", corpora["lambda"], TrainingOptions(512), None
    yield "genomes", genomes, TrainingOptions(plan.many), None
    for given in (
        {},
        {"merge_harmful": True},
        {"penalty": "binary", "crossing": "any", **WEIGHTS},
        {"min_compression": 3.0, "max_token_length": 12, **WEIGHTS},
        {"min_compression": 4.5, "stop": "both", "vocabulary_size": ids // 4, **WEIGHTS},
        {"merge_rule": "span_preserving", "vocabulary_size": ids + plan.motifs},
    ):
        options = TrainingOptions(**{"vocabulary_size": ids, **given})
        yield f"genomes, {len(bank):,} motifs", genomes, options, bank
    letters = copies(genomes, plan.proved).data
    letters[len(letters) // 3 :: 3] = ord("A")
    letters[len(letters) // 2 :] = ord("A")
    offsets = np.array([0, len(letters) // 4, len(letters)])
    yield "runs", Corpus(letters, offsets), TrainingOptions(ids, min_frequency=1), None
    yield "copies", copies(genomes, plan.proved), TrainingOptions(ids), None
    yield "copies", copies(genomes, plan.proved), TrainingOptions(ids, **WEIGHTS), bank


def _proofs(device: Device, corpora: dict[str, Corpus], plan: Plan) -> Iterator[Row]:
    """Compare the merges of every case on both processors, also each continued by the other."""
    watch = Watch(device)
    for name, corpus, options, bank in _cases(corpora, plan):
        begin = perf_counter()
        expected = train(corpus, options, motifs=bank)
        cpu_s = perf_counter() - begin
        times = _Times()
        training = learn_on(watch, corpus, options, bank, times)
        _compare(name, training, expected)
        changed = {key for key in options.__slots__ if _differs(options, key)}
        yield _print_row(
            {
                "corpus": name,
                "bases": corpus.num_bases,
                "options": {key: getattr(options, key) for key in sorted(changed)},
                "merges": len(training.merges),
                "ending": training.ending,
                "equal": True,
                "cpu_s": cpu_s,
                "gpu_s": times.whole[0],
            }
        )
    yield _print_row(_continued(watch, corpora["genomes"], plan))


def _differs(options: TrainingOptions, key: str) -> bool:
    return bool(getattr(options, key) != getattr(TrainingOptions(), key))


def _compare(name: str, training: Training, expected: Training) -> None:
    pairs = zip(training.merges, expected.merges, strict=False)
    for number, (ours, theirs) in enumerate(pairs):
        if ours != theirs:
            raise SystemExit(f"{name}: merge {number} is {ours} and on the processor {theirs}")
    ends = [(len(t.merges), t.ending, t.compression) for t in (training, expected)]
    if ends[0] != ends[1] or training.vocabulary != expected.vocabulary:
        raise SystemExit(f"{name}: ends with {ends[0]} and on the processor with {ends[1]}")


def _continued(watch: Watch, corpus: Corpus, plan: Plan) -> Row:
    """Train half of the merges on the CPU or GPU, and the rest on the other of the two."""
    options = TrainingOptions(plan.ids)
    expected = train(corpus, options)
    makers: dict[str, Any] = {"cpu": {}, "gpu": {"make_merger": watch}}
    for first, then in (("cpu", "gpu"), ("gpu", "cpu")):
        with TemporaryDirectory() as folder:
            state, stop = Path(folder) / "state", _after(len(expected.merges) // 2)
            train(corpus, options, state=state, should_stop=stop, **makers[first])
            training = train(corpus, options, state=state, **makers[then])
            _compare(f"begun on the {first}, ended on the {then}", training, expected)
    name = "genomes, begun on the one and ended on the other"
    return {"corpus": name, "bases": corpus.num_bases, "merges": len(expected.merges)} | {
        "equal": True
    }


def _after(number: int) -> Callable[[], bool]:
    """Return a function that returns False for `number` calls, and then True."""
    calls = iter(range(number))
    return lambda: next(calls, None) is None


def _growth(device: Device, genome: Corpus, plan: Plan) -> Iterator[Row]:
    """Time trainings of the same number of tokens on growing corpora."""
    watch, bank = Watch(device), bank_of(genome, plan.motifs)
    for num_bases in plan.bases:
        corpus = copies(genome, num_bases)
        with_motifs = (None, bank) if num_bases <= plan.largest_with_motifs else (None,)
        for motifs in with_motifs:
            options, times = TrainingOptions(plan.ids, **WEIGHTS), _Times()
            for _ in range(1 + plan.rounds):
                training = learn_on(watch, corpus, options, motifs, times)
            row: Row = {
                "bases": num_bases,
                "motifs": 0 if motifs is None else len(motifs),
                "merges": len(training.merges),
                "compression": round(training.compression, 4),
                "device_bytes": watch.device_bytes,
                "first_s": times.whole[0],
                "wall": summary(times.whole[1:]),
                "host": summary(times.host[1:]),
                "copied": summary(times.copied[1:]),
                "merged": summary(times.merged[1:]),
            }
            assert watch.merger is not None
            moved = watch.merger.moved_tokens * (BYTES_A_TOKEN if motifs is None else BYTES_PLACED)
            row["moved_bytes"] = moved
            row["moved_bytes_a_second"] = moved / row["merged"]["median_s"]
            row["ns_per_base"] = 1e9 * row["wall"]["median_s"] / num_bases
            if num_bases == LIMIT_BASES:
                row["limit_s"] = LIMIT_S
            yield _print_row(row)


def _print_row(row: Row) -> Row:
    shown = {
        name: f"{value['median_s']:.3f} s ({value['min_s']:.3f} to {value['max_s']:.3f})"
        for name, value in row.items()
        if isinstance(value, dict) and "median_s" in value
    }
    print({**row, **shown}, flush=True)
    return row
