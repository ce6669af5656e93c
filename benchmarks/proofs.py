"""Ids are proved before anything is timed; what is timed must give the ids that were proved.

Knows neither which engine gives them nor how the witnesses work.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.texts import Int64s, Text
from benchmarks.timed_vocabularies import TimedVocabulary
from benchmarks.witnesses import Part, Witnesses, counts_digest, ids_digest

__all__ = ["Differs", "NotProved", "Pair", "Proofs", "Proved"]

Ids = NDArray[np.int32]
Pair = tuple[TimedVocabulary, Text]
Encode = Callable[[TimedVocabulary, Text], tuple[Ids, Int64s]]
"""int32[T] ids of all rows, and int64[B + 1] where each row's begin."""


class Differs(Exception):
    """The engine's ids are not the witness's; nothing may be timed."""


class NotProved(Exception):
    """These ids were never compared with a witness."""


@dataclass(slots=True)
class Proved:
    """A line of the results.

    Attributes:
        witnesses: bytes that each library answered for.
    """

    vocabulary: str
    text: str
    num_bytes: int = 0
    num_rows: int = 0
    num_ids: int = 0
    witnesses: Counter[str] = field(default_factory=Counter)

    def add(self, text: Text, ids: Ids, libraries: Counter[str]) -> None:
        """Count a text in."""
        self.num_bytes += len(text.data)
        self.num_rows += len(text.offsets) - 1
        self.num_ids += len(ids)
        self.witnesses += libraries


@dataclass(slots=True)
class Proofs:
    """What was proved.

    Attributes:
        encode: the engine.
        records: for the results.
    """

    witnesses: Witnesses
    encode: Encode
    records: list[Proved] = field(default_factory=list)
    _proved: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def prove(self, pairs: Sequence[Pair]) -> None:
        """Compare every text's ids with the vocabulary's witness.

        Raises:
            Differs: they are not equal.
        """
        wanted = [pair for pair in pairs if self._key(*pair) not in self._proved]
        asked = [self.witnesses.ask(timed.witness, text) for timed, text in wanted]
        for (timed, text), parts in zip(wanted, asked, strict=True):
            ids, libraries = self._compare(timed, text, parts)
            self._proved[self._key(timed, text)] = len(ids), ids_digest(ids)
            record = Proved(timed.name, text.name)
            record.add(text, ids, libraries)
            self.records.append(record)

    def prove_stream(
        self, vocabularies: Sequence[TimedVocabulary], name: str, texts: Iterable[Text]
    ) -> None:
        """Compare texts that are needed only for this; the witness is one text ahead of us.

        Raises:
            Differs: the ids are not equal.
        """
        totals = {timed.name: Proved(timed.name, name) for timed in vocabularies}
        waiting: deque[tuple[Text, list[Iterator[Part]]]] = deque()

        def compare() -> None:
            text, asked = waiting.popleft()
            for timed, parts in zip(vocabularies, asked, strict=True):
                totals[timed.name].add(text, *self._compare(timed, text, parts))
            self.witnesses.forget(text)

        for text in texts:
            waiting.append((text, [self.witnesses.ask(t.witness, text) for t in vocabularies]))
            if len(waiting) > 1:
                compare()
        while waiting:
            compare()
        self.records += totals.values()

    def require(self, timed: TimedVocabulary, text: Text, ids: Ids) -> None:
        """Check that ids are the proved ones.

        Raises:
            NotProved: nothing was proved of this text.
            Differs: they are others.
        """
        key = self._key(timed, text)
        if key not in self._proved:
            raise NotProved(f"{timed.name} on {text.name}")
        if self._proved[key] != (len(ids), ids_digest(ids)):
            raise Differs(f"{timed.name} on {text.name}: not the ids that were proved")

    @staticmethod
    def _key(timed: TimedVocabulary, text: Text) -> tuple[str, str]:
        return timed.vocabulary.digest, text.digest

    def _compare(
        self, timed: TimedVocabulary, text: Text, parts: Iterable[Part]
    ) -> tuple[Ids, Counter[str]]:
        ids, offsets = self.encode(timed, text)
        libraries: Counter[str] = Counter()
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
            libraries[part.library] += int(text.borders[part.end] - text.borders[part.first])
            done += part.num_ids
        if done != len(ids):
            raise Differs(f"{timed.name} on {text.name}: {len(ids) - done} ids too many")
        return ids, libraries
