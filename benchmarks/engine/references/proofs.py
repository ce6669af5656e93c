"""Compares ids with reference libraries before anything is timed, and timed ids with those.

This module depends neither on the engine nor on the reference libraries.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.references.published_vocabularies import Published
from benchmarks.engine.references.reference_libraries import (
    GroupDigests,
    ReferenceProcesses,
    counts_digest,
    ids_digest,
)
from benchmarks.support.texts import Text
from gpu.engine import GpuEngine
from vocabularies.batch.batch import Batch, EncodeOptions

Ids = NDArray[np.int32]
Pair = tuple[Published, Text]
EXPECTED = "expected.json"
"""Of the data folder: {vocabulary: {file: {n_tokens, sha256 of its ids}}}."""
ORDINARY = EncodeOptions(add_special_tokens=False, special="plain")


class Differs(Exception):
    """The engine's ids are not the reference's; nothing may be timed."""


class NotProved(Exception):
    """The ids of a text were never compared with a reference library's."""


@dataclass(slots=True)
class Proved:
    """A line of the results: the number of rows, ids and bytes that were compared.

    Attributes:
        witnesses: bytes of text by the reference library that encoded them; a key of the results.
    """

    vocabulary: str
    text: str
    num_bytes: int = 0
    num_rows: int = 0
    num_ids: int = 0
    witnesses: dict[str, int] = field(default_factory=dict)

    def add(self, num_rows: int, num_ids: int, answered: dict[str, int]) -> None:
        """Add a compared text: its rows, its ids, and its bytes by reference library."""
        self.num_bytes += sum(answered.values())
        self.num_rows += num_rows
        self.num_ids += num_ids
        for library, num_bytes in answered.items():
            self.witnesses[library] = self.witnesses.get(library, 0) + num_bytes


@dataclass(slots=True)
class Proofs:
    """The comparisons of ids, and the digests of the ids that were equal.

    Attributes:
        references: the processes of the reference libraries.
        engine: the engine whose ids are compared.
        records: the lines of the results.
    """

    references: ReferenceProcesses
    engine: GpuEngine
    records: list[Proved] = field(default_factory=list)
    _proved: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def prove_files(self, folder: Path, vocabularies: Sequence[Published]) -> None:
        """Compare the data folder's texts with the digests that lie beside them.

        Raises:
            Differs: the ids are not equal.
        """
        path = folder / EXPECTED
        expected = json.loads(path.read_text()) if path.exists() else {}
        for timed in vocabularies:
            record = Proved(timed.name, EXPECTED)
            for name, digest in expected.get(timed.name, {}).items():
                if not name.startswith("text/"):
                    continue
                text = (folder / name).read_bytes()
                batch = Batch.from_bytes([text], ORDINARY)
                ids = self.engine.encode(timed.vocabulary, batch).ids
                if (len(ids), ids_digest(ids)) != (digest["n_tokens"], digest["sha256"]):
                    raise Differs(f"{timed.name} on {name}: not the ids of {EXPECTED}")
                record.add(1, len(ids), {EXPECTED: len(text)})
            self.records.append(record)

    def prove(self, pairs: Sequence[Pair]) -> None:
        """Compare every text's ids with those of the reference libraries.

        Raises:
            Differs: they are not equal.
        """
        unproved = [pair for pair in pairs if self._key(*pair) not in self._proved]
        answers = [self.references.submit(timed.files, text) for timed, text in unproved]
        for (timed, text), parts in zip(unproved, answers, strict=True):
            ids, answered = self._compare(timed, text, parts)
            self._proved[self._key(timed, text)] = len(ids), ids_digest(ids)
            record = Proved(timed.name, text.name)
            record.add(len(text.offsets) - 1, len(ids), answered)
            self.records.append(record)

    def prove_stream(
        self, vocabularies: Sequence[Published], name: str, texts: Iterable[Text]
    ) -> None:
        """Compare texts that are not timed; the reference works one text ahead.

        Raises:
            Differs: the ids are not equal.
        """
        totals = {timed.name: Proved(timed.name, name) for timed in vocabularies}
        waiting: deque[tuple[Text, list[Iterator[GroupDigests]]]] = deque()

        def compare() -> None:
            text, answers = waiting.popleft()
            for timed, parts in zip(vocabularies, answers, strict=True):
                ids, answered = self._compare(timed, text, parts)
                totals[timed.name].add(len(text.offsets) - 1, len(ids), answered)
            self.references.forget(text)

        for text in texts:
            waiting.append((text, [self.references.submit(t.files, text) for t in vocabularies]))
            if len(waiting) > 1:
                compare()
        while waiting:
            compare()
        self.records += totals.values()

    def require(self, timed: Published, text: Text, ids: Ids) -> None:
        """Check that ids are the proved ones.

        Raises:
            NotProved: no ids of this text were proved.
            Differs: the ids are not equal.
        """
        key = self._key(timed, text)
        if key not in self._proved:
            raise NotProved(f"{timed.name} on {text.name}")
        if self._proved[key] != (len(ids), ids_digest(ids)):
            raise Differs(f"{timed.name} on {text.name}: not the ids that were proved")

    @staticmethod
    def _key(timed: Published, text: Text) -> tuple[str, str]:
        return timed.vocabulary.digest, text.digest

    def _compare(
        self, timed: Published, text: Text, parts: Iterable[GroupDigests]
    ) -> tuple[Ids, dict[str, int]]:
        ids, offsets = self.engine.encode_ids(timed.vocabulary, text.data, text.offsets)
        answered: dict[str, int] = {}
        done = 0
        for part in parts:
            own = ids[done : done + part.num_ids]
            equal = len(own) == part.num_ids and ids_digest(own) == part.ids_sha256
            if text.rows_are_texts:
                counts = np.diff(offsets[part.first : part.end + 1])
                equal = equal and counts_digest(counts) == part.counts_sha256
            if not equal:
                begin, end = text.borders[[part.first, part.end]].tolist()
                where = f"{timed.name} on {text.name}, bytes {begin} to {end}"
                raise Differs(f"{where}: other ids than those of {part.library}")
            num_bytes = int(text.borders[part.end] - text.borders[part.first])
            answered[part.library] = answered.get(part.library, 0) + num_bytes
            done += part.num_ids
        if done != len(ids):
            raise Differs(f"{timed.name} on {text.name}: {len(ids) - done} ids too many")
        return ids, answered
