"""Encodes documents to rows of ids with an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.corpus.documents import Documents, Int64s, Reject, Rows
from service.corpus.encoding.verification import Verifier
from service.corpus.job import Job
from service.engines.base import Codec
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.model.vocabulary import Vocabulary

try:
    from service.corpus import _corpus as native
except ImportError:
    native = None  # type: ignore[assignment]

NONE = -1
TOO_LONG = "too_long"  # A code of rejects; the service has no such rows.
MAX_DOCUMENT_IDS = (1 << 31) - 1
"""The most ids of a document, as the formats store its length as int32."""
PIECE_IDS = 1 << 20


class EncodedDocuments(NamedTuple):
    """The rows of a block of documents, with the block's rejects, sizes and digests.

    Attributes:
        rows: the rows.
        rejects: all rejected records of the block, ordered by place.
        end: the place after the block.
        num_bytes: the size of the block in the file, in bytes.
        text_bytes: the bytes of the block's texts.
        digests: the digests of blocks of the file.
    """

    rows: Rows
    rejects: list[Reject]
    end: int
    num_bytes: int
    text_bytes: int
    digests: dict[int, bytes]


class DocumentEncoder:
    """Encodes documents with the options of a job; it is thread-safe.

    Args:
        job: the job.
        vocabulary: the vocabulary.
        engine: computes the ids.
        id_dtype: the dtype of ids in the shards, uint16 or int32.
        verifier: compares some documents with the reference.
    """

    def __init__(
        self,
        job: Job,
        vocabulary: Vocabulary,
        engine: Codec,
        id_dtype: type[np.integer[Any]],
        verifier: Verifier,
    ) -> None:
        self.verifier = verifier
        self.vocabulary = vocabulary
        self.engine = engine
        self.id_dtype = id_dtype
        self.options = EncodeOptions(
            add_special_tokens=job.add_special_tokens,
            special=job.special,  # type: ignore[arg-type]
            reverse_complement=job.reverse_complement,
            uppercase=job.uppercase,
            circular=job.circular,
            spans=job.has_mask,
        )
        self.window, self.stride = job.window, job.stride
        self.begin_id = NONE if job.begin_id is None else job.begin_id
        self.end_id = NONE if job.end_id is None else job.end_id
        self.max_ids = MAX_DOCUMENT_IDS - (self.begin_id >= 0) - (self.end_id >= 0)

    def encode(self, documents: Documents, input_number: int) -> EncodedDocuments:
        """Encode documents of one file; a refused document becomes a reject.

        Raises:
            DiffersFromReference: the ids of a verified document differ from the reference's.
        """
        batch = Batch(
            data=documents.data,
            offsets=documents.offsets,
            options=self.options,
            id_dtype=self.id_dtype,
        )
        encoded = refuse_long(self.engine.encode(self.vocabulary, batch), self.max_ids)
        rejects, places, offsets = documents.rejects, documents.places, encoded.offsets
        numbers = np.arange(len(places))
        if encoded.errors:
            refused = [
                Reject(int(places[row]), error.code, error.message, error.where)
                for row, error in encoded.errors.items()
            ]
            rejects = sorted([*rejects, *refused])
            kept = np.ones(len(places), np.bool_)
            kept[[*encoded.errors]] = False
            places, numbers = places[kept], numbers[kept]
            offsets = offsets[np.concatenate([[True], kept])]  # A refused row has no ids.
        rows = make_rows(encoded.ids, offsets, places, documents.end, input_number)
        if documents.masks is not None and self.options.spans:
            rows.mask = mask_of(documents.masks, documents.offsets, encoded)
        if self.window is not None:
            rows = cut_windows(rows, places, self.window, self.stride or self.window)
        add_begin_end_tokens(rows, self.begin_id, self.end_id, self.id_dtype)
        self.verifier.check(documents, numbers, rows, input_number)
        return EncodedDocuments(
            rows,
            rejects,
            documents.end,
            documents.num_bytes,
            len(documents.data),
            documents.digests,
        )


def refuse_long(encoded: Encoded, max_ids: int) -> Encoded:
    """Refuse rows of more than `max_ids` ids."""
    if len(encoded.ids) <= max_ids:
        return encoded
    lengths = np.diff(encoded.offsets)
    is_long = lengths > max_ids
    is_kept = np.repeat(~is_long, lengths)
    errors = {
        row: RowError(TOO_LONG, f"{lengths[row]} ids; a document has at most {max_ids}")
        for row in np.flatnonzero(is_long).tolist()
    }
    return replace(
        encoded,
        ids=encoded.ids[is_kept],
        offsets=offsets_from_lengths(np.where(is_long, 0, lengths)),
        spans=None if encoded.spans is None else encoded.spans[is_kept],
        errors={**encoded.errors, **errors},
    )


def mask_of(masks: NDArray[np.uint8], offsets: Int64s, encoded: Encoded) -> NDArray[np.uint8]:
    """Return for each id whether a model learns its first byte."""
    if encoded.spans is None or not len(masks):
        return np.zeros(len(encoded.ids), np.uint8)
    num_ids = np.diff(encoded.offsets)
    begins = np.repeat(offsets[:-1], num_ids) + encoded.spans[:, 0]
    learned: NDArray[np.uint8] = masks[np.minimum(begins, len(masks) - 1)]
    learned[np.repeat(np.diff(offsets) == 0, num_ids)] = 0  # The text behind is another document's.
    return learned


def cut_windows(rows: Rows, places: Int64s, window: int, stride: int) -> Rows:
    """Cut rows, each a document, into overlapping windows; an empty row has no windows.

    The last window of a document may be shorter; POST /v1/windows pads it instead.

    Args:
        rows: the documents.
        places: int64[R], the place of each document in its file.
        window: the ids of a window.
        stride: the distance of the begins of two windows, in ids.
    """
    lengths = np.diff(rows.offsets)
    counts = -(-lengths // stride)
    documents = np.repeat(np.arange(len(lengths)), counts)
    firsts = np.cumsum(counts) - counts
    numbers = np.arange(len(documents)) - firsts[documents]
    starts = numbers * stride
    sizes = np.minimum(window, lengths[documents] - starts)
    is_last = numbers == counts[documents] - 1
    offsets = offsets_from_lengths(sizes)
    begins = rows.offsets[documents] + starts
    # Windows side by side are the ids of the documents.
    ids = rows.ids if stride == window else _copy_rows(rows.ids, begins, offsets, window)
    return Rows(
        ids,
        offsets,
        rows.next_inputs[documents],
        np.where(is_last, rows.next_places[documents], places[documents]),
        np.where(is_last, 0, numbers + 1),
        np.concatenate([[0], np.cumsum(is_last)]),
    )


def _copy_rows(
    ids: NDArray[np.integer[Any]], begins: Int64s, offsets: Int64s, longest: int
) -> NDArray[np.integer[Any]]:
    """Join rows that begin anywhere in the ids, in pieces, as an index takes 8 bytes for each id.

    Args:
        ids: the ids.
        begins: int64[R], where each row begins in the ids.
        offsets: int64[R + 1], where each row begins in the result.
        longest: the most ids of a row.
    """
    copied = np.empty(offsets[-1], ids.dtype)
    num_rows = max(1, PIECE_IDS // longest)
    for first in range(0, len(begins), num_rows):
        part = offsets[first : first + num_rows + 1]
        index = ragged_indices(begins[first : first + num_rows], np.diff(part))
        copied[part[0] : part[-1]] = ids[index]
    return copied


def make_rows(
    ids: NDArray[np.integer[Any]], offsets: Int64s, places: Int64s, end: int, input_number: int
) -> Rows:
    """Make rows that are whole documents of a file, with their places.

    Args:
        ids: the rows, joined.
        offsets: int64[R + 1], where each row begins.
        places: int64[R], the place of each document in the file.
        end: the place after the last document.
        input_number: the number of the file.
    """
    num_rows = len(places)
    return Rows(
        ids,
        offsets,
        np.full(num_rows, input_number, np.int64),
        np.append(places, end)[1:],
        np.zeros(num_rows, np.int64),
        np.arange(num_rows + 1),
    )


def add_begin_end_tokens(
    rows: Rows, begin_id: int, end_id: int, dtype: type[np.integer[Any]]
) -> None:
    """Add begin and end tokens to rows; in the mask, begin tokens are 0 and end tokens 1."""
    offsets = rows.offsets
    rows.ids, rows.offsets = copy_with_begin_end_tokens(rows.ids, offsets, begin_id, end_id, dtype)
    if rows.mask is not None:
        begin, end = (0 if begin_id >= 0 else NONE), (1 if end_id >= 0 else NONE)
        mask = rows.mask.astype(np.int32)
        longer, _ = copy_with_begin_end_tokens(mask, offsets, begin, end, np.uint16)
        rows.mask = longer.astype(np.uint8)


def copy_with_begin_end_tokens(
    ids: NDArray[np.integer[Any]],
    offsets: Int64s,
    begin_id: int,
    end_id: int,
    dtype: type[np.integer[Any]],
) -> tuple[NDArray[np.integer[Any]], Int64s]:
    """Copy rows of ids to another dtype; rows that are not empty get begin and end tokens.

    Rows that need neither are not copied.

    Args:
        ids: the rows, joined.
        offsets: int64[B + 1], where each row begins.
        begin_id: the begin token; a negative value adds none.
        end_id: the end token; a negative value adds none.
        dtype: uint16 or int32.
    """
    num_added = (begin_id >= 0) + (end_id >= 0)
    if not num_added and ids.dtype == dtype:
        return ids, offsets
    if native is not None and ids.dtype in (np.int32, np.uint16):
        out = np.empty(len(ids) + num_added * (len(offsets) - 1), dtype)
        out_offsets = np.empty(len(offsets), np.int64)
        native.add_begin_end_tokens(
            ids, np.ascontiguousarray(offsets), begin_id, end_id, out, out_offsets
        )
        return out[: out_offsets[-1]], out_offsets
    if not num_added:
        return ids.astype(dtype), offsets
    lengths = np.diff(offsets)
    out_offsets = np.concatenate([[0], np.cumsum(np.where(lengths, lengths + num_added, 0))])
    out = np.empty(out_offsets[-1], dtype)
    is_own = np.ones(len(out), np.bool_)
    for added, places in ((begin_id, out_offsets[:-1]), (end_id, out_offsets[1:] - 1)):
        if added >= 0:
            out[places[lengths > 0]] = added
            is_own[places[lengths > 0]] = False
    out[is_own] = ids
    return out, out_offsets
