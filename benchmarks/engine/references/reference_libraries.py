"""Encodes texts with tiktoken on all cores, or with another library if tiktoken fails.

tiktoken's regular expressions fail on some texts; Hugging Face tokenizers encodes those, or
fastokens if tokenizers fails as well. The processes read a text from a file and return digests of
its ids. This module uses no engine of warptok.
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
class ReferenceFiles:
    """The files and facts of a vocabulary that the libraries read.

    Attributes:
        ranks: tiktoken's rank file.
        pattern: the pretokenizer's pattern of tiktoken or the model's own code.
        special_tokens: content and id.
        tokenizer_json: the file for tokenizers and fastokens.
    """

    name: str
    ranks: Path
    pattern: str
    special_tokens: tuple[tuple[str, int], ...]
    tokenizer_json: Path


@dataclass(frozen=True, slots=True)
class GroupDigests:
    """The digests of a library's ids for a group of texts, numbers first to end - 1.

    Attributes:
        ids_sha256: the hash of all ids as little-endian int32.
        counts_sha256: the hash of each text's number of ids as int64.
        library: the library that encoded them, with its version.
    """

    first: int
    end: int
    num_ids: int
    ids_sha256: str
    counts_sha256: str
    library: str


def ids_digest(ids: NDArray[Any]) -> str:
    """Hash ids as little-endian int32."""
    return hashlib.sha256(np.ascontiguousarray(ids, "<i4").data).hexdigest()


def counts_digest(counts: Int64s) -> str:
    """Hash the number of ids of each text."""
    return hashlib.sha256(np.ascontiguousarray(counts, "<i8").data).hexdigest()


@functools.cache
def tiktoken_encoding(files: ReferenceFiles) -> Any:
    """Make tiktoken's encoding of a rank file."""
    import tiktoken

    lines = (line.split() for line in files.ranks.read_bytes().splitlines() if line)
    return tiktoken.Encoding(
        files.name,
        pat_str=files.pattern,
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
        special_tokens=dict(files.special_tokens),
    )


@functools.cache
def _tokenizers(files: ReferenceFiles) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(files.tokenizer_json))


def _tiktoken_ids(files: ReferenceFiles, text: str) -> Ids:
    """Encode with tiktoken and match special tokens; raise ValueError if its regex engine fails."""
    encoding = tiktoken_encoding(files)
    ids: NDArray[np.uint32] = encoding.encode_to_numpy(text, allowed_special="all")
    return ids.astype(np.int32)


def _tokenizers_ids(files: ReferenceFiles, text: str) -> Ids:
    encoded = _tokenizers(files).encode(text, add_special_tokens=False)
    return np.array(encoded.ids, np.int32)


@functools.cache
def _fastokens(files: ReferenceFiles) -> Any:
    import fastokens

    return fastokens.Tokenizer.from_json_str(files.tokenizer_json.read_text())


def _fastokens_ids(files: ReferenceFiles, text: str) -> Ids:
    ids: bytes = _fastokens(files).encode_batch_flat([text], False, False)[0]
    return np.frombuffer(ids, np.int32)


def _gives_up(error: BaseException) -> bool:
    """Return whether a library's regular expressions reached a limit; tokenizers then panics."""
    return isinstance(error, ValueError) or type(error).__name__ == "PanicException"


def reference_ids(files: ReferenceFiles, texts: Sequence[str]) -> tuple[str, list[Ids]]:
    """Return the first library that encodes all texts without failing, and its ids of each text."""
    for library, ids in (("tiktoken", _tiktoken_ids), ("tokenizers", _tokenizers_ids)):
        try:
            return library, [ids(files, text) for text in texts]
        except BaseException as error:
            if not _gives_up(error):
                raise
    return "fastokens", [_fastokens_ids(files, text) for text in texts]


def _digests_of(files: ReferenceFiles, path: Path, borders: Int64s, first: int) -> GroupDigests:
    """Encode a group of texts in another process; return the digests of its ids."""
    begin = int(borders[0])
    data = np.fromfile(path, np.uint8, int(borders[-1]) - begin, offset=begin).tobytes()
    places = (borders - begin).tolist()
    texts = [data[a:b].decode() for a, b in itertools.pairwise(places)]
    library, rows = reference_ids(files, texts)
    ids, counts = np.concatenate(rows), np.array([len(row) for row in rows], np.int64)
    named, end = f"{library} {version(library)}", first + len(texts)
    return GroupDigests(first, end, len(ids), ids_digest(ids), counts_digest(counts), named)


def _begin(environment: dict[str, str]) -> None:
    os.environ.update(environment)


class ReferenceProcesses:
    """Processes that encode texts with the libraries, started at the first text.

    Args:
        folder: the folder for the files that the processes read.
        num_processes: the number of processes.
    """

    def __init__(self, folder: Path, num_processes: int) -> None:
        self.folder = folder
        self._pool = ProcessPoolExecutor(
            num_processes,
            multiprocessing.get_context("spawn"),
            _begin,
            ({"TOKENIZERS_PARALLELISM": "false"},),
        )

    def submit(self, files: ReferenceFiles, text: Text) -> Iterator[GroupDigests]:
        """Start to encode a text; return an iterator over the digests of its groups."""
        path = self.folder / f"{text.sha256}.txt"
        if not path.exists():
            text.data.tofile(path)
        futures = [
            self._pool.submit(_digests_of, files, path, text.borders[a : b + 1], a)
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
    """Yield the first text and the end of each group that a process encodes at once."""
    size = min(MAX_GROUP_BYTES, max(1, int(borders[-1]) // MIN_GROUPS))
    marks = np.arange(int(borders[0]), int(borders[-1]), size)
    cuts = np.unique(np.append(np.searchsorted(borders, marks), len(borders) - 1)).tolist()
    yield from itertools.pairwise(cuts)
