"""Asks tiktoken for ids on all cores, and other libraries where it gives up.

These are Hugging Face tokenizers and, where its regular expressions give up, too, fastokens.
A text goes to the processes as a file that all of them read, its answers come back as digests.
Knows no engine of ours.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.texts import Int64s, Text

Ids = NDArray[np.int32]
MAX_GROUP_BYTES, MIN_GROUPS = 1 << 20, 64


@dataclass(frozen=True, slots=True)
class Witness:
    """What the libraries need to know of a vocabulary.

    Attributes:
        ranks: tiktoken's file.
        pattern: as tiktoken or the model's own code has it.
        special_tokens: content and id.
        tokenizer_json: a file for tokenizers.
    """

    name: str
    ranks: Path
    pattern: str
    special_tokens: tuple[tuple[str, int], ...]
    tokenizer_json: Path


@dataclass(frozen=True, slots=True)
class Part:
    """What a library says of the texts first to end, by their borders.

    Attributes:
        ids_sha256: of all ids as little-endian int32.
        counts_sha256: of each text's number of ids as int64.
        library: the library that answered, with its version.
    """

    first: int
    end: int
    num_ids: int
    ids_sha256: str
    counts_sha256: str
    library: str


def ids_digest(ids: NDArray[Any]) -> str:
    """Of ids as little-endian int32."""
    return hashlib.sha256(np.ascontiguousarray(ids, "<i4").data).hexdigest()


def counts_digest(counts: Int64s) -> str:
    """Of each text's number of ids."""
    return hashlib.sha256(np.ascontiguousarray(counts, "<i8").data).hexdigest()


@functools.cache
def tiktoken_encoding(witness: Witness) -> Any:
    """The encoding that tiktoken makes of a rank file."""
    import tiktoken

    lines = (line.split() for line in witness.ranks.read_bytes().splitlines() if line)
    return tiktoken.Encoding(
        witness.name,
        pat_str=witness.pattern,
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
        special_tokens=dict(witness.special_tokens),
    )


@functools.cache
def _tokenizers(witness: Witness) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(witness.tokenizer_json))


def _tiktoken_ids(witness: Witness, text: str) -> Ids:
    """Special tokens are matched; raises ValueError where the pattern's engine gives up."""
    encoding = tiktoken_encoding(witness)
    ids: NDArray[np.uint32] = encoding.encode_to_numpy(text, allowed_special="all")
    return ids.astype(np.int32)


def _tokenizers_ids(witness: Witness, text: str) -> Ids:
    encoded = _tokenizers(witness).encode(text, add_special_tokens=False)
    return np.array(encoded.ids, np.int32)


@functools.cache
def _fastokens(witness: Witness) -> Any:
    import fastokens

    return fastokens.Tokenizer.from_json_str(witness.tokenizer_json.read_text())


def _fastokens_ids(witness: Witness, text: str) -> Ids:
    ids: bytes = _fastokens(witness).encode_batch_flat([text], False, False)[0]
    return np.frombuffer(ids, np.int32)


def _gives_up(error: BaseException) -> bool:
    """Whether a library's regular expressions have met a limit; tokenizers then panics."""
    return isinstance(error, ValueError) or type(error).__name__ == "PanicException"


def witness_ids(witness: Witness, texts: Sequence[str]) -> tuple[str, list[Ids]]:
    """Each text's ids, and which library says so: the first that does not give up."""
    for library, ids in (("tiktoken", _tiktoken_ids), ("tokenizers", _tokenizers_ids)):
        try:
            return library, [ids(witness, text) for text in texts]
        except BaseException as error:
            if not _gives_up(error):
                raise
    return "fastokens", [_fastokens_ids(witness, text) for text in texts]


def _ask(witness: Witness, path: Path, borders: Int64s, first: int) -> Part:
    """In another process: a part's digests."""
    begin = int(borders[0])
    data = np.fromfile(path, np.uint8, int(borders[-1]) - begin, offset=begin).tobytes()
    places = (borders - begin).tolist()
    texts = [data[a:b].decode() for a, b in itertools.pairwise(places)]
    library, rows = witness_ids(witness, texts)
    ids, counts = np.concatenate(rows), np.array([len(row) for row in rows], np.int64)
    named, end = f"{library} {version(library)}", first + len(texts)
    return Part(first, end, len(ids), ids_digest(ids), counts_digest(counts), named)


def _begin(environment: dict[str, str]) -> None:
    os.environ.update(environment)


class Witnesses:
    """The processes, which start at the first question, and the files they read.

    Args:
        folder: for those files.
        num_processes: how many.
    """

    def __init__(self, folder: Path, num_processes: int) -> None:
        self.folder = folder
        self._pool = ProcessPoolExecutor(
            num_processes,
            multiprocessing.get_context("spawn"),
            _begin,
            ({"TOKENIZERS_PARALLELISM": "false"},),
        )

    def ask(self, witness: Witness, text: Text) -> Iterator[Part]:
        """What the witness says, part by part; the work begins now."""
        path = self.folder / f"{text.sha256}.txt"
        if not path.exists():
            text.data.tofile(path)
        futures = [
            self._pool.submit(_ask, witness, path, text.borders[a : b + 1], a)
            for a, b in _groups(text.borders)
        ]
        return (future.result() for future in futures)

    def forget(self, text: Text) -> None:
        """Remove a text's file."""
        (self.folder / f"{text.sha256}.txt").unlink(missing_ok=True)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)


def _groups(borders: Int64s) -> Iterator[tuple[int, int]]:
    """Neighbouring texts for one process at a time."""
    size = min(MAX_GROUP_BYTES, max(1, int(borders[-1]) // MIN_GROUPS))
    marks = np.arange(int(borders[0]), int(borders[-1]), size)
    cuts = np.unique(np.append(np.searchsorted(borders, marks), len(borders) - 1)).tolist()
    yield from itertools.pairwise(cuts)
