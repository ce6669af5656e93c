"""Other people's libraries, on all cores: what they say the ids are, and how long they take.

A text goes to the processes as a file that all of them read, its answers come back as digests, or
as arrays where the ids themselves are wanted. Knows no engine of ours.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.texts import Int64s, Text

__all__ = ["Part", "Witness", "Witnesses", "counts_digest", "ids_digest", "ids_of"]

Ids = NDArray[np.int32]
LIBRARIES = ("tiktoken", "tokenizers")
MAX_GROUP_BYTES, MIN_GROUPS = 1 << 20, 64


@dataclass(frozen=True, slots=True)
class Witness:
    """Where the libraries find a vocabulary.

    Attributes:
        digest: the vocabulary's.
        tiktoken: the name of the encoding that tiktoken itself defines; "" where there is none.
        tokenizer_json: path of a file for tokenizers, which answers where tiktoken cannot.
    """

    digest: str
    tiktoken: str
    tokenizer_json: str


@dataclass(frozen=True, slots=True)
class Part:
    """What a library says of the texts first to end, by their borders.

    Attributes:
        ids_sha256: of all ids as little-endian int32.
        counts_sha256: of each text's number of ids as int64.
        library: which one said so, with its version.
    """

    first: int
    end: int
    num_ids: int
    ids_sha256: str
    counts_sha256: str
    library: str


def ids_digest(ids: Ids) -> str:
    """Of ids as little-endian int32."""
    return hashlib.sha256(np.ascontiguousarray(ids, "<i4").data).hexdigest()


def counts_digest(counts: Int64s) -> str:
    """Of each text's number of ids."""
    return hashlib.sha256(np.ascontiguousarray(counts, "<i8").data).hexdigest()


@functools.cache
def _library(name: str, where: str) -> Any:
    if name == "tiktoken":
        import tiktoken

        return tiktoken.get_encoding(where)
    from tokenizers import Tokenizer

    return Tokenizer.from_file(where)


def ids_of(library: str, witness: Witness, text: str) -> Ids:
    """The ids of a text; special tokens are matched, nothing is added.

    Raises:
        ValueError: the library gives up on it.
    """
    if library == "tiktoken":
        encoding = _library(library, witness.tiktoken)
        ids: NDArray[np.uint32] = encoding.encode_to_numpy(text, allowed_special="all")
        return ids.astype(np.int32)
    tokenizer = _library(library, witness.tokenizer_json)
    return np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32)


def _texts(path: str, borders: Int64s) -> list[str]:
    first = int(borders[0])
    data = np.fromfile(path, np.uint8, int(borders[-1]) - first, offset=first).tobytes()
    places = (borders - first).tolist()
    return [data[a:b].decode() for a, b in itertools.pairwise(places)]


def _ask(witness: Witness, path: str, borders: Int64s, first: int) -> Part:
    """In another process: a part's digests, by the first library that answers."""
    texts = _texts(path, borders)
    for library in LIBRARIES[not witness.tiktoken :]:
        try:
            rows = [ids_of(library, witness, text) for text in texts]
        except ValueError:
            if library == LIBRARIES[-1]:
                raise
        else:
            break
    ids, counts = np.concatenate(rows), np.array([len(row) for row in rows], np.int64)
    name = f"{library} {version(library)}"
    end = first + len(texts)
    return Part(first, end, len(ids), ids_digest(ids), counts_digest(counts), name)


def _encode(witness: Witness, library: str, path: str, borders: Int64s) -> Ids:
    """In another process: a part's ids."""
    return np.concatenate([ids_of(library, witness, text) for text in _texts(path, borders)])


def _begin(environment: dict[str, str]) -> None:
    os.environ.update(environment)


class Witnesses:
    """The processes and the files they read.

    Args:
        folder: for those files.
        num_processes: how many; 0: what `known` holds must do.
        environment: of the processes.
        known: a JSON file of earlier answers, which is read now and written by `close`.
    """

    def __init__(
        self,
        folder: Path,
        num_processes: int,
        environment: dict[str, str] | None = None,
        known: Path | None = None,
    ) -> None:
        self.folder, self.num_processes, self._known_path = folder, num_processes, known
        self._known: dict[str, list[dict[str, Any]]] = {}
        if known is not None and known.exists():
            self._known = json.loads(known.read_text())
        self._pool: ProcessPoolExecutor | None = None
        self._environment = {"TOKENIZERS_PARALLELISM": "false"} | (environment or {})

    def ask(self, witness: Witness, text: Text) -> Iterator[Part]:
        """What the witness says, part by part; the work begins now."""
        key = f"{witness.digest} {text.digest}"
        if key in self._known:
            return iter([Part(**part) for part in self._known[key]])
        path = str(self.written(text))
        futures = [
            self.pool.submit(_ask, witness, path, text.borders[a : b + 1], a)
            for a, b in _groups(text.borders)
        ]
        return self._answers(key, futures)

    def _answers(self, key: str, futures: list[Future[Part]]) -> Iterator[Part]:
        parts = []
        for future in futures:
            parts.append(future.result())
            yield parts[-1]
        self._known[key] = [asdict(part) for part in parts]

    def encode(self, witness: Witness, library: str, text: Text) -> Ids:
        """The ids of a text by all processes together."""
        path = str(self.written(text))
        futures = [
            self.pool.submit(_encode, witness, library, path, text.borders[a : b + 1])
            for a, b in _groups(text.borders)
        ]
        return np.concatenate([future.result() for future in futures])

    @property
    def pool(self) -> ProcessPoolExecutor:
        """The processes, which start when they are first needed."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self.num_processes, context, _begin, (self._environment,)
            )
        return self._pool

    def written(self, text: Text) -> Path:
        """The file of a text's bytes."""
        path = self.folder / f"{text.sha256}.txt"
        if not path.exists():
            text.data.tofile(path)
        return path

    def forget(self, text: Text) -> None:
        """Remove the file."""
        (self.folder / f"{text.sha256}.txt").unlink(missing_ok=True)

    def close(self) -> None:
        """End the processes and write down what is known."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._known_path is not None:
            self._known_path.write_text(json.dumps(self._known))


def _groups(borders: Int64s) -> Iterator[tuple[int, int]]:
    """Neighbouring texts for one process at a time."""
    size = min(MAX_GROUP_BYTES, max(1, int(borders[-1]) // MIN_GROUPS))
    marks = np.arange(int(borders[0]), int(borders[-1]), size)
    cuts = np.unique(np.append(np.searchsorted(borders, marks), len(borders) - 1)).tolist()
    yield from itertools.pairwise(cuts)
