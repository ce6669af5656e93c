"""Times the CPU engine beside other libraries, on one core and on all cores, without a GPU.

    python -m benchmarks.engine --engine cpu --data FOLDER

A separate process measures each number of cores: its affinity is set before a library starts a
thread. First, ids of text are compared with tiktoken's and ids of sequences with the reference's;
timed calls must return the compared ids.
"""

from __future__ import annotations

import gc
import itertools
import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.blocks.comparisons import as_ids, front_of
from benchmarks.engine.competitors import (
    CPU_ENGINE,
    Absent,
    Competitor,
    cpu_competitors,
    strings_of,
)
from benchmarks.engine.cpu.cases import Case, dna_cases, text_cases
from benchmarks.engine.cpu.other_tokenizers import OtherTokenizers
from benchmarks.engine.references.proofs import Differs
from benchmarks.engine.references.published_vocabularies import Published, read_published
from benchmarks.engine.references.reference_libraries import (
    ReferenceFiles,
    ids_digest,
    reference_ids,
)
from benchmarks.support.machine import machine
from benchmarks.support.texts import Text
from benchmarks.support.timing import Run, clocked, per_second, summary, take_turns
from vocabularies import builtin
from vocabularies.batch.batch import EncodeOptions
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.types import Bpe, Characters
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

Row = dict[str, Any]
Ids = NDArray[Any]
CORES = ("1", "all")
KINDS = ("text", "dna")
COPY = "copy of the ids"
OTHER_TOKENIZERS = "tokenizers, another version"
SLOW = ("tiktoken", "tokenizers")
CACHING = ("fastokens", "gigatoken")  # They remember pretokens, as our engine does.
PACKAGES = ("numpy", "tiktoken", "tokenizers", "fastokens", "gigatoken", "warptok")
OWN = EncodeOptions(add_special_tokens=False)
FIRST_ROUNDS = 3  # Each loads the vocabulary, which takes a second.
PROVED_BASES = 1 << 14  # Of each batch: the reference takes microseconds for one.


@dataclass(frozen=True, slots=True)
class CpuSizes:
    """The sizes of the texts and how often each call is timed.

    Attributes:
        corpus_bytes: the size of each corpus.
        front_bytes: the size of the front of a text for slow engines, with tens of MB per second.
        num_bases: the bases of a batch of sequences.
        num_batches: the number of such batches.
        rounds: the turns of each call.
        slice_s: the shortest time of a turn, in seconds; faster calls are repeated in it.
    """

    corpus_bytes: int = 16 << 20
    front_bytes: int = 1 << 18
    num_bases: int = 1 << 20
    num_batches: int = 24
    rounds: int = 7
    slice_s: float = 0.02


FULL, QUICK = CpuSizes(), CpuSizes(2 << 20, 1 << 17, 1 << 18, 8, 3, 0.01)
TINY = CpuSizes(6_000, 3_000, 4_096, 2, 2, 0.0)


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a measuring process.

    Attributes:
        data: the data folder.
        kinds: of KINDS.
        cores: "1" or "all".
        other_python: a Python with another version of tokenizers; None: there is none.
        proved: digests of the ids that were compared before, by case, vocabulary and batch.
    """

    data: Path
    kinds: Sequence[str]
    cores: str
    sizes: CpuSizes
    other_python: Path | None
    proved: dict[tuple[str, str, int], str]


def run_cpu(
    data: Path,
    kinds: Sequence[str],
    numbers_of_cores: Sequence[str],
    sizes: CpuSizes,
    other_python: Path | None,
    command: str,
) -> dict[str, Any]:
    """Compare ids, time all cases, and return the results.

    Raises:
        Differs: an id of ours is not the reference's.
    """
    rows: list[Row] = []
    proofs: list[Row] = []
    proved: dict[tuple[str, str, int], str] = {}
    for cores in numbers_of_cores:
        task = Task(data, kinds, cores, sizes, other_python, proved)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context, use_cores, (cores,)) as process:
            measured = process.submit(measure, task).result()
        rows += measured.rows
        proofs += measured.proofs
        proved = measured.proved
    return {
        "command": command,
        "machine": machine(PACKAGES),
        "sizes": asdict(sizes),
        "proofs": proofs,
        "cpu": rows,
    }


def added(earlier: Row, later: Row) -> Row:
    """Add the rows and proofs of an earlier run that a later one does not have."""

    def keys(row: Row) -> tuple[object, ...]:
        return tuple(row.get(name) for name in ("case", "vocabulary", "cores", "engine"))

    document = dict(later)
    for field in ("proofs", "cpu"):
        known = {keys(row) for row in later[field]}
        document[field] = [r for r in earlier[field] if keys(r) not in known] + later[field]
    return document


def use_cores(cores: str) -> None:
    """Keep this process, and the threads that it starts, on one core, or do nothing."""
    if cores == "1":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@dataclass(slots=True)
class Measured:
    """The results of a measuring process."""

    rows: list[Row]
    proofs: list[Row]
    proved: dict[tuple[str, str, int], str]


def measure(task: Task) -> Measured:
    """Measure all cases on the cores of this process.

    Raises:
        Differs: an id of ours is not the reference's.
    """
    measured, began = Measured([], [], dict(task.proved)), perf_counter()
    with tempfile.TemporaryDirectory(prefix="warptok-benchmark-") as scratch:
        vocabularies = Vocabularies(task.data, Path(scratch))
        cases: list[Iterator[Case]] = []
        if "text" in task.kinds:
            cases.append(text_cases(task.data, task.sizes.corpus_bytes))
        if "dna" in task.kinds:
            cases.append(dna_cases(task.data, task.sizes.num_bases, task.sizes.num_batches))
        for case in itertools.chain(*cases):
            rows = _CaseRun(task, case, vocabularies, measured).rows()
            measured.rows += rows
            line = ", ".join(f"{r['engine']} {r['gb_per_s']:.3f}" for r in rows if "gb_per_s" in r)
            place = f"{perf_counter() - began:5.0f} s  {task.cores} core, {case.name}"
            print(f"{place}, {case.vocabulary}: {line}", flush=True)
    return measured


class Vocabularies:
    """The vocabularies of a process, and the engines that have loaded them."""

    def __init__(self, data: Path, scratch: Path) -> None:
        self.data = data
        self.scratch = scratch
        self._published: dict[str, Published] = {}
        self._encoders: dict[tuple[str, str], Callable[[Any], Any]] = {}

    def published(self, case: Case) -> Published:
        """Read a vocabulary, once."""
        name = case.vocabulary
        if name not in self._published and case.kind == "text":
            self._published[name] = read_published(name, self.data, self.scratch)
        elif name not in self._published:
            vocabulary, path = builtin.load(name), self.scratch / f"{name}.json"
            if isinstance(vocabulary.model, Bpe):
                path.write_text(tokenizer_json(vocabulary))
            files = ReferenceFiles(name, path, "", (), path)
            self._published[name] = Published(name, vocabulary, files)
        return self._published[name]

    def encoder(self, competitor: Competitor, timed: Published) -> Callable[[Any], Any]:
        """Load a vocabulary with an engine, once."""
        key = (competitor.key, timed.name)
        if key not in self._encoders:
            self._encoders[key] = competitor.load(timed)
        return self._encoders[key]


class _CaseRun:
    """A case on the cores of this process."""

    def __init__(
        self, task: Task, case: Case, vocabularies: Vocabularies, measured: Measured
    ) -> None:
        self.task, self.case, self.vocabularies = task, case, vocabularies
        self.timed = vocabularies.published(case)
        engine = next(c for c in cpu_competitors(0) if c.name == CPU_ENGINE)
        if case.is_one_row:
            engine = replace(engine, form=lambda text: text)  # A single row, which it cuts itself.
        self.engine = replace(engine, most_bytes=float("inf"))
        self.right = [self._own_ids(batch) for batch in case.batches]
        self._prove(measured)

    def _own_ids(self, batch: Text) -> Ids:
        encode = self.vocabularies.encoder(self.engine, self.timed)
        return as_ids(encode(self.engine.form(batch)))

    def _prove(self, measured: Measured) -> None:
        """Compare our ids with the reference's, or with those that were compared before."""
        for number, (batch, ids) in enumerate(zip(self.case.batches, self.right, strict=True)):
            key, digest = (self.case.name, self.case.vocabulary, number), ids_digest(ids)
            if key not in measured.proved:
                library, num_bytes = self._compare(batch, ids)
                proof = {"case": self.case.name, "vocabulary": self.case.vocabulary}
                measured.proofs.append(proof | {"bytes": num_bytes, "by": library})
                measured.proved[key] = digest
            if measured.proved[key] != digest:
                raise Differs(f"{self.case.vocabulary} on {self.case.name}: other ids than before")

    def _compare(self, batch: Text, ids: Ids) -> tuple[str, int]:
        """Compare a batch; return the name of the reference, and the number of bytes compared.

        Raises:
            Differs: the ids are not equal.
        """
        if self.case.kind == "text":
            library, rows = reference_ids(self.timed.files, strings_of(batch))
            right, num_bytes = np.concatenate(rows), len(batch.data)
        else:
            front = front_of(batch, PROVED_BASES)
            library, right = "reference", _reference_of(self.timed.vocabulary, front)
            num_bytes = min(len(front.data), PROVED_BASES)
        if not np.array_equal(ids[: len(right)], right):
            raise Differs(f"{self.case.vocabulary} on {self.case.name}: other ids than {library}'s")
        return library, num_bytes

    def rows(self) -> list[Row]:
        """Time every engine in turns."""
        rows: list[Row] = []
        runs: dict[str, Run] = {}
        with ExitStack() as stack:
            for name, start in self._ways(stack):
                row: Row = {"case": self.case.name, "vocabulary": self.case.vocabulary}
                row |= {"cores": self.task.cores, "engine": name}
                rows.append(row)
                try:
                    runs[name] = start(row)
                except (Absent, ImportError) as error:
                    row["status"] = f"absent: {error}"
                except (ValueError, RuntimeError) as error:
                    row["status"] = f"differs or cannot: {error}"[:200]
            samples = self._take_turns(runs)
        for row in rows:
            if row["engine"] in samples:
                seconds = samples[row["engine"]]
                row |= {"status": "exact", "gb_per_s": per_second(row["bytes"], seconds)}
                row["seconds"] = summary(seconds)
        return rows

    def _take_turns(self, runs: dict[str, Run]) -> dict[str, list[float]]:
        sizes = self.task.sizes
        if self.case.is_first_time:
            return take_turns(runs, min(sizes.rounds, FIRST_ROUNDS), warmups=0)
        return take_turns(runs, sizes.rounds, sizes.slice_s)

    def _ways(self, stack: ExitStack) -> Iterator[tuple[str, Callable[[Row], Run]]]:
        """List the engines that the case is timed with; each sets its row's bytes."""
        yield CPU_ENGINE, partial(self._start, self.engine)
        is_bpe = isinstance(self.timed.vocabulary.model, Bpe)
        front_bytes = self.task.sizes.front_bytes
        for competitor in cpu_competitors(front_bytes)[1:]:
            most_bytes = front_bytes if competitor.name in SLOW else float("inf")
            competitor = replace(competitor, most_bytes=most_bytes)
            is_right_kind = self.case.kind == "text" or competitor.name == "tokenizers"
            if self.case.is_first_time:
                is_right_kind = competitor.name in CACHING
            if is_bpe and is_right_kind and competitor.cores == self._cores_of(competitor):
                yield competitor.name, partial(self._start, competitor)
        if self.case.is_first_time:
            return
        if is_bpe and self.task.other_python is not None:
            yield OTHER_TOKENIZERS, partial(self._start_other, stack)
        for name, work in _numpy_ways(self.timed.vocabulary, self.case.batches[0]).items():
            yield name, partial(self._start_numpy, work)
        yield COPY, self._start_copy

    def _cores_of(self, competitor: Competitor) -> str:
        """Return an engine's way for this number of cores: tiktoken has one for a single core."""
        return self.task.cores if competitor.name == "tiktoken" else "all"

    def _start(self, competitor: Competitor, row: Row) -> Run:
        row["version"] = competitor.version()
        if self.case.is_first_time:
            return self._start_first(competitor, row)
        encode = self.vocabularies.encoder(competitor, self.timed)
        fronts = [front_of(batch, competitor.most_bytes) for batch in self.case.batches]
        forms = [competitor.form(front) for front in fronts]
        row["bytes"] = len(fronts[0].data)
        if self.case.is_new_each_time:
            return self._checked(fronts, lambda number: clocked_answer(encode, forms[number]))
        for number, (front, form) in enumerate(zip(fronts, forms, strict=True)):
            self._check(front, number, as_ids(encode(form)))
        turns = itertools.cycle(forms)
        return clocked(lambda: encode(next(turns)))

    def _start_first(self, competitor: Competitor, row: Row) -> Run:
        """Load the vocabulary anew for each call, and encode the other batches before it."""
        *earlier, last = [competitor.form(batch) for batch in self.case.batches]
        row["bytes"] = len(self.case.batches[-1].data)

        def run() -> float:
            encode = competitor.load(self.timed)
            for form in earlier:
                encode(form)
            gc.collect()  # An engine that a call before had is not freed while the clock runs.
            seconds, ids = clocked_answer(encode, last)
            self._check(self.case.batches[-1], len(earlier), ids)
            return seconds

        return run

    def _checked(self, fronts: list[Text], encode: Callable[[int], tuple[float, Ids]]) -> Run:
        """Give each call the next batch, and compare its ids when the clock has stopped."""
        numbers = itertools.cycle(range(len(fronts)))

        def run() -> float:
            number = next(numbers)
            seconds, ids = encode(number)
            self._check(fronts[number], number, ids)
            return seconds

        run()
        return run

    def _check(self, front: Text, number: int, ids: Ids) -> None:
        """Compare the ids of a batch or of its front with ours."""
        right = self.right[number]
        if front is not self.case.batches[number]:
            right = right[: len(self._own_ids(front))]
        if not np.array_equal(ids, right):
            raise ValueError(f"{len(ids)} ids, {len(right)} are right")

    def _start_other(self, stack: ExitStack, row: Row) -> Run:
        assert self.task.other_python is not None
        fronts = [front_of(b, self.task.sizes.front_bytes) for b in self.case.batches]
        texts = self.vocabularies.scratch / "texts.json"
        texts.write_text(json.dumps([strings_of(front) for front in fronts]))
        other = OtherTokenizers(self.task.other_python, self.timed.files.tokenizer_json, texts)
        stack.enter_context(other)
        row |= {"version": other.version, "bytes": len(fronts[0].data)}
        return self._checked(fronts, other.encode)

    def _start_numpy(self, work: Callable[[], Ids], row: Row) -> Run:
        row["bytes"] = len(self.case.batches[0].data)
        self._check(self.case.batches[0], 0, work().astype(np.int32).ravel())
        return clocked(work)

    def _start_copy(self, row: Row) -> Run:
        row["bytes"] = len(self.case.batches[0].data)
        return clocked(self.right[0].copy)


def clocked_answer(encode: Callable[[Any], Any], form: Any) -> tuple[float, Ids]:
    """Encode once; return the seconds and the ids."""
    begin = perf_counter()
    answer = encode(form)
    return perf_counter() - begin, as_ids(answer)


def _reference_of(vocabulary: Vocabulary, text: Text) -> Ids:
    """Encode whole rows by the reference; of a single long row the front, without its last ids."""
    if len(text.offsets) == 2 and len(text.data) > PROVED_BASES:
        ids = reference.encode(vocabulary, text.data[:PROVED_BASES].tobytes().decode(), OWN).ids
        return np.array(ids[:-MAX_K], np.int32)
    rows = (
        reference.encode(vocabulary, text.data[a:b].tobytes().decode(), OWN).ids
        for a, b in itertools.pairwise(text.offsets.tolist())
    )
    return np.concatenate([np.array(row, np.int32) for row in rows])


MAX_K = 8  # Of the k-mers here: the last ids of a part of a sequence may be others in the whole.


def _numpy_ways(vocabulary: Vocabulary, text: Text) -> dict[str, Callable[[], Ids]]:
    """List the short NumPy programs: for characters, and for 6-mers at every base of equal rows."""
    data, num_rows = text.data, len(text.offsets) - 1
    if isinstance(vocabulary.model, Characters):
        ids = np.array([reference.encode(vocabulary, chr(b), OWN).ids[0] for b in range(128)] * 2)
        table, raw, wide = ids.astype(np.uint8).tobytes(), data.tobytes(), ids.astype(np.int32)
        return {
            "bytes.translate, 8-bit ids": lambda: np.frombuffer(raw.translate(table), np.uint8),
            "NumPy look-up": lambda: wide[data],
        }
    if vocabulary.digest != builtin.load("mtdna6").digest or len(data) % num_rows:
        return {}
    codes = np.zeros(256, np.int32)
    codes[np.frombuffer(b"ACGT", np.uint8)] = range(4)
    first_id = int(reference.encode(vocabulary, "AAAAAA", OWN).ids[0])

    def kmers() -> Ids:
        letters = codes[data].reshape(num_rows, -1)
        count = letters.shape[1] - 5
        ids = np.full((num_rows, count), first_id, np.int32)
        for i in range(6):
            ids += letters[:, i : i + count] << 2 * (5 - i)
        return ids

    return {"NumPy, bases A, C, G, T alone": kmers}
