"""The other engines: our own on the CPU, and the libraries, each called as its authors advise.

What a library likes as input (strings, a list of bytes) is made before anything is timed; its ids
are taken as it gives them. A library that is not installed is absent, and the results say so.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.texts import Text
from benchmarks.timed_vocabularies import TimedVocabulary
from benchmarks.witnesses import Witnesses, ids_of
from vocabularies.batch import Batch, EncodeOptions
from vocabularies.formats import tokenizer_json

__all__ = ["Absent", "Answer", "Rival", "Rows", "as_ids", "rivals"]

Answer = Callable[["Rows"], Any]
"""What a library gives for rows; `as_ids` makes an array of it, which is not timed."""
Make = Callable[[TimedVocabulary], Answer]
WITHOUT_FRAME = EncodeOptions(add_special_tokens=False)


class Absent(Exception):
    """A library is not installed."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Texts in every form that a library asks for."""

    text: Text

    @cached_property
    def parts(self) -> list[bytes]:
        """The rows as bytes."""
        data, places = self.text.data.tobytes(), self.text.borders.tolist()
        return [data[a:b] for a, b in itertools.pairwise(places)]

    @cached_property
    def strings(self) -> list[str]:
        """The rows as strings."""
        return [part.decode() for part in self.parts]

    @cached_property
    def joined(self) -> bytes:
        """All rows as one."""
        return self.text.data.tobytes()


@dataclass(frozen=True, slots=True)
class Rival:
    """An engine to be compared with.

    Attributes:
        package: whose version is reported; "" for our own.
        cores: "all" or "1".
        make: loads a vocabulary; what it gives has seen no text yet.
        is_slow: it gets a small part of the corpus.
        remembers: it is faster on what it has seen, so the first call is timed apart.
    """

    name: str
    package: str
    cores: str
    make: Make
    is_slow: bool = False
    remembers: bool = False

    def version(self) -> str:
        """The version of the library.

        Raises:
            Absent: it is not installed.
        """
        try:
            return version(self.package) if self.package else ""
        except PackageNotFoundError as error:
            raise Absent(self.package) from error


def rivals(witnesses: Witnesses) -> tuple[Rival, ...]:
    """All of them; tiktoken and tokenizers use all cores as processes."""

    def by_processes(library: str) -> Make:
        def make(timed: TimedVocabulary) -> Answer:
            if library == "tiktoken":
                refuse_unknown(timed)
            return lambda rows: witnesses.encode(timed.witness, library, rows.text)

        return make

    return (
        Rival("cpu engine", "fastokens", "all", cpu_engine, remembers=True),
        Rival("fastokens", "fastokens", "all", fastokens, remembers=True),
        Rival("gigatoken", "gigatoken", "all", gigatoken, remembers=True),
        Rival("tiktoken", "tiktoken", "1", one_core_tiktoken, is_slow=True),
        Rival("tiktoken", "tiktoken", "all", by_processes("tiktoken")),
        Rival("tokenizers", "tokenizers", "all", by_processes("tokenizers")),
    )


def cpu_engine(timed: TimedVocabulary) -> Answer:
    """Ours, bytes in and an array out."""
    from service.cpu_engine import CpuEngine

    engine = CpuEngine()
    engine.load(timed.vocabulary)

    def answer(rows: Rows) -> NDArray[np.int32]:
        batch = Batch(data=rows.text.data, offsets=rows.text.borders, options=WITHOUT_FRAME)
        return engine.encode(timed.vocabulary, batch).ids

    return answer


def fastokens(timed: TimedVocabulary) -> Answer:
    """Its call for bulk."""
    library = importlib.import_module("fastokens")
    tokenizer = library.Tokenizer.from_json_str(known_spelling(timed))

    def answer(rows: Rows) -> NDArray[np.int32]:
        ids, _ = tokenizer.encode_batch_flat(rows.strings, False, False)
        return np.frombuffer(ids, np.int32)

    return answer


def gigatoken(timed: TimedVocabulary) -> Answer:
    """One buffer, which it splits itself, or its rows."""
    library = importlib.import_module("gigatoken")
    tokenizer = library.Tokenizer.from_json(known_spelling(timed))

    def answer(rows: Rows) -> Any:
        if rows.text.rows_are_texts:
            return tokenizer.encode_batch(rows.parts)
        return tokenizer.encode_batch(library.BytesSource(rows.joined))

    return answer


def one_core_tiktoken(timed: TimedVocabulary) -> Answer:
    """A row at a time."""
    refuse_unknown(timed)
    return lambda rows: np.concatenate(
        [ids_of("tiktoken", timed.witness, text) for text in rows.strings]
    )


def refuse_unknown(timed: TimedVocabulary) -> None:
    """Raise Absent where tiktoken itself defines no such vocabulary."""
    if not timed.witness.tiktoken:
        raise Absent(f"tiktoken defines no {timed.name}")


def known_spelling(timed: TimedVocabulary) -> str:
    """A tokenizer.json; cl100k with llama3's pattern, which those libraries know by heart.

    They differ only in white space at the end of a text.
    """
    if timed.vocabulary.pretokenizer == "cl100k":
        return tokenizer_json(replace(timed.vocabulary, pretokenizer="llama3"))
    return timed.json


def as_ids(answer: Any) -> NDArray[np.int32]:
    """int32[T] of whatever a library gave: an array, rows of arrays or of numbers."""
    if isinstance(answer, np.ndarray):
        return answer.astype(np.int32)
    if hasattr(answer, "layout"):
        answer = importlib.import_module("awkward").flatten(answer, axis=None)
        return np.asarray(answer, np.int32)
    rows = [np.asarray(row, np.int32) for row in answer]
    return np.concatenate([np.zeros(0, np.int32), *rows])
