"""Decodes a batch of ids to bytes with NumPy; the result equals the reference's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Decoded
from service.engines.fault_isolation import reraise_unless_failure
from vocabularies.batch.batch import RowError
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.model.tables import TokenTable
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary

Int64s = NDArray[np.int64]
PART_IDS = 1 << 16
LIBRARY_FAILED = RowError(
    "library_failed", "the library tokenizers, the reference here, fails on these ids"
)


def decode_rows(
    vocabulary: Vocabulary, table: TokenTable, ids: Int64s, offsets: Int64s, skip: bool
) -> Decoded:
    """Decode ids int64[T], whose rows begin at offsets int64[B + 1], to bytes.

    A row with an id outside the vocabulary is refused. Each overlapping k-mer adds only its new
    letters.
    """
    errors = _find_errors(table, ids, offsets)
    ids, offsets = _without_rows(ids, offsets, errors)
    if skip:
        hidden = table.is_special[ids]
        ids, offsets, hidden = _without_skipped(vocabulary, ids, offsets, hidden)
    else:
        hidden = np.zeros(len(ids), np.bool_)
    sizes = table.lengths[ids].astype(np.int64)
    begins = table.offsets[ids]
    sizes[hidden] = 0
    model = vocabulary.model
    if isinstance(model, Kmers) and model.stride < model.k and len(ids) > 1:
        shared = model.k - model.stride
        continues = _find_continuations(model, table, ids, offsets)
        begins[continues] += shared
        sizes[continues] -= shared
    ends = offsets_from_lengths(sizes)
    return Decoded(_gather_bytes(table, begins, sizes, ends), ends[offsets], errors)


def _gather_bytes(
    table: TokenTable, begins: Int64s, sizes: Int64s, ends: Int64s
) -> NDArray[np.uint8]:
    """Copy the tokens' bytes in parts, as each part takes memory and blocks other threads."""
    data = np.empty(int(ends[-1]), np.uint8)
    for first in range(0, len(sizes), PART_IDS):
        last = min(first + PART_IDS, len(sizes))
        places = ragged_indices(begins[first:last], sizes[first:last])
        data[ends[first] : ends[last]] = table.data[places]
    return data


def _find_errors(table: TokenTable, ids: Int64s, offsets: Int64s) -> dict[int, RowError]:
    num_ids = len(table.lengths)
    wrong = (ids < 0) | (ids >= num_ids)
    wrong |= table.lengths[np.where(wrong, 0, ids)] < 0
    places = np.flatnonzero(wrong)
    rows, first = np.unique(np.searchsorted(offsets, places, side="right") - 1, return_index=True)
    errors = {}
    for row, place in zip(rows.tolist(), places[first].tolist(), strict=True):
        message = f"id {ids[place]} is not an id of this vocabulary of {num_ids} ids"
        errors[row] = RowError("id_out_of_range", message, f"ids[{place - offsets[row]}]")
    return errors


def _without_rows(
    ids: Int64s, offsets: Int64s, errors: dict[int, RowError]
) -> tuple[Int64s, Int64s]:
    if not errors:
        return ids, offsets
    sizes = np.diff(offsets)
    kept = np.ones(len(sizes), np.bool_)
    kept[list(errors)] = False
    return ids[np.repeat(kept, sizes)], offsets_from_lengths(sizes * kept)


def _without_skipped(
    vocabulary: Vocabulary, ids: Int64s, offsets: Int64s, hidden: NDArray[np.bool_]
) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
    """Drop skipped ids; a skipped unknown id stays, as it separates the k-mers around it."""
    kept = ~hidden
    if isinstance(vocabulary.model, Kmers):
        kept |= ids == vocabulary.model.unknown_id
    return ids[kept], offsets_from_lengths(kept.astype(np.int64))[offsets], hidden[kept]


def _find_continuations(
    model: Kmers, table: TokenTable, ids: Int64s, offsets: Int64s
) -> NDArray[np.bool_]:
    """Return bool[T], which is true for each k-mer that overlaps the k-mer before it."""
    num_kmers: int = len(model.letters) ** model.k
    is_kmer = (ids >= model.first_id) & (ids < model.first_id + num_kmers)
    is_kmer &= table.lengths[ids] == model.k
    continues = is_kmer.copy()
    continues[1:] &= is_kmer[:-1]
    continues[offsets[offsets < len(ids)]] = False
    begins = table.offsets[ids]
    for i in range(model.k - model.stride):
        places = np.flatnonzero(continues)
        before = table.data[begins[places - 1] + model.stride + i]
        continues[places] = before == table.data[begins[places] + i]
    return continues


def list_strings(vocabulary: Vocabulary) -> list[bytes]:
    """List the strings of tokens as in the vocabulary's file; b"" for an id without a token."""
    return [
        b"" if token is None else vocabulary.file_string(token_id).encode()
        for token_id, token in enumerate(vocabulary.tokens)
    ]


def decode_with_blanks(
    strings: list[bytes], table: TokenTable, ids: Int64s, offsets: Int64s, skip: bool
) -> Decoded:
    """Decode rows to the strings of their tokens, separated by blanks.

    Args:
        strings: the string of each token, by id.
        table: the bytes and kinds of all tokens.
        ids: int64[T], the rows, joined.
        offsets: int64[B + 1], where each row begins.
        skip: whether special tokens are left out.
    """
    errors = _find_errors(table, ids, offsets)
    ids, offsets = _without_rows(ids, offsets, errors)
    if skip:
        kept = ~table.is_special[ids]
        ids, offsets = ids[kept], offsets_from_lengths(kept.astype(np.int64))[offsets]
    spelled = [strings[token_id] for token_id in ids.tolist()]
    rows = [b" ".join(spelled[begin:end]) for begin, end in pairwise(offsets.tolist())]
    return _join_rows(rows, errors)


def decode_by_library(
    decode: Callable[[list[int], bool], str],
    table: TokenTable,
    ids: Int64s,
    offsets: Int64s,
    skip: bool,
) -> Decoded:
    """Decode rows one by one with the library that defines the ids; refuse those that fail.

    Args:
        decode: the library's function: the ids of a row, and `skip`, to a string.
        table: the bytes and kinds of all tokens.
        ids: int64[T], the rows, joined.
        offsets: int64[B + 1], where each row begins.
        skip: whether special tokens are left out.
    """
    errors = _find_errors(table, ids, offsets)
    ids, offsets = _without_rows(ids, offsets, errors)
    rows: list[bytes] = []
    for row, (begin, end) in enumerate(pairwise(offsets.tolist())):
        try:
            rows.append(decode(ids[begin:end].tolist(), skip).encode())
        except BaseException as error:  # A Rust panic is no Exception.
            reraise_unless_failure(error)
            rows.append(b"")
            errors.setdefault(row, LIBRARY_FAILED)
    return _join_rows(rows, errors)


def _join_rows(rows: list[bytes], errors: dict[int, RowError]) -> Decoded:
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    return Decoded(
        np.frombuffer(bytearray().join(rows), np.uint8), offsets_from_lengths(sizes), errors
    )
