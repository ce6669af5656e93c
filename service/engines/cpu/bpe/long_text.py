"""Encodes long rows of BPE vocabularies in pieces, which saves memory and lets other threads run.

    text ──► a piece up to a border ────────────► all of its ids
        └──► a piece inside of a run ──► its ids but the last ones ─┐
             next piece, from where these end ◄─────────────────────┘  enc(l r) = l r?

In a run, a piece is cut between two of its tokens. The last tokens may be wrong, because the text
ends after them, so they are dropped, and the next piece begins with their bytes. Let l be the
remaining last tokens of the piece, and r the first tokens of the next one. If their joined text
encodes to l and r again, all ids equal those of the whole text (docs/internals/text-bpe.md, "Pairs
decide"). If not, a piece of twice the length is encoded instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Abandoned
from service.engines.cpu.bpe.cut_points import RUN_BYTES, CutPoints
from service.engines.cpu.bpe.motif_cut_points import MotifCutPoints
from service.engines.encoder import Encoder
from service.runtime.memory_pool import GrowableArray, Take
from vocabularies.batch.batch import Batch, EncodeOptions, RowError
from vocabularies.batch.post_processing import Content, join_rows
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Ids = NDArray[np.integer[Any]]
PIECE_BYTES = 1 << 18
MIN_DROPPED_BYTES = 64  # At the end of a piece that ends in a run.
PART_CHARACTERS = 1 << 20
MARGIN = 1 << 16  # Ids of memory beyond the number that the first pieces let expect.
MAX_BACK = 256  # Tokens at a piece's end between which a cut is searched.
MAX_SIDE = RUN_BYTES // 2  # Bytes of the compared tokens on one side of a cut.
PLAIN = EncodeOptions(add_special_tokens=False, special="plain")


@dataclass(frozen=True, slots=True)
class _Piece:
    """An encoded part of a row.

    Attributes:
        begin, end: the range of its bytes in the row; `end` is not included.
        num_ids: the number of its ids.
        tail: the last ids, which spell whole characters, if the piece ends inside a run; () at a
            border.
    """

    begin: int
    end: int
    num_ids: int
    tail: tuple[int, ...] = ()


class _EncodedRow:
    """The ids of a row's pieces so far, in growing arrays of pooled memory.

    An array for each piece would need new memory each time, and no other thread runs while the
    system maps and unmaps its pages.

    Attributes:
        pieces: the pieces so far, in order.
    """

    def __init__(self, num_bytes: int, with_spans: bool, take: Take) -> None:
        self.num_bytes = num_bytes
        self.with_spans = with_spans
        self.take = take
        self.pieces: list[_Piece] = []
        self.ids: GrowableArray | None = None
        self.spans = GrowableArray(np.dtype(np.int64), take, (2,))

    def add(self, piece: _Piece, ids: Ids, spans: NDArray[np.int64] | None) -> None:
        """Add the next piece, with the first `num_ids` of these ids and spans."""
        if self.ids is None:
            self.ids = GrowableArray(ids.dtype, self.take)
        num = piece.num_ids
        expected = (self.ids.size + num) * self.num_bytes // piece.end + MARGIN
        self.ids.extend(num, expected)[:] = ids[:num]
        if self.with_spans and spans is not None:
            np.add(spans[:num], piece.begin, out=self.spans.extend(num, expected))
        self.pieces.append(piece)

    def pop(self) -> _Piece:
        """Remove the last piece, so that it can be encoded again."""
        assert self.ids is not None
        piece = self.pieces.pop()
        self.ids.size -= piece.num_ids
        if self.with_spans:
            self.spans.size -= piece.num_ids
        return piece

    def content(self) -> Content:
        """Make the content of the whole row."""
        assert self.ids is not None
        offsets = np.array([0, self.ids.size])
        return Content(self.ids.array, offsets, self.spans.array if self.with_spans else None)


class LongTextEncoder:
    """Encodes batches with another encoder, and passes long rows to it in pieces.

    It is thread-safe.

    Args:
        vocabulary: the vocabulary of the encoder.
        encoder: encodes the pieces and the short rows.
        take: allocates memory for the ids of long rows.
        piece_bytes: the length of a piece if the text can be cut at this length.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoder: Encoder,
        take: Take,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.tokens = vocabulary.tokens
        self.encoder = encoder
        self.take = take
        self.piece_bytes = piece_bytes
        self.cut_points = CutPoints.of(vocabulary)
        self.motif_cut_points = MotifCutPoints.of(vocabulary)

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options.

        Raises:
            Abandoned: no request waits for the batch any more.
        """
        if self.cut_points is None and self.motif_cut_points is None:
            return self.encoder.encode(batch, options)
        is_long = _sizes(batch) > self.piece_bytes
        if not is_long.any():
            return self.encoder.encode(batch.select(range(len(batch)), options), options)
        if len(batch) == 1:
            return self._encode_long_row(batch, 0, options)
        parts = [
            (np.array([row]), self._encode_long_row(batch, row, options))
            for row in np.flatnonzero(is_long).tolist()
        ]
        short = np.flatnonzero(~is_long)
        if len(short):
            parts.append(
                (short, self.encoder.encode(batch.select(short.tolist(), options), options))
            )
        return join_rows(parts, len(batch))

    def _encode_long_row(self, batch: Batch, row: int, options: EncodeOptions) -> Content:
        data = _row_array(batch, row, self.take)
        if self.motif_cut_points is not None:
            return self._encode_motif_row(self.motif_cut_points, batch, data, options)
        assert self.cut_points is not None
        return self._encode_run_row(self.cut_points, batch, data, options)

    def _encode_motif_row(
        self, cut_points: MotifCutPoints, batch: Batch, data: Bytes, options: EncodeOptions
    ) -> Content:
        """Encode a row in pieces that end after motifs."""
        encoded = _EncodedRow(len(data), options.spans, self.take)
        begin, size = 0, self.piece_bytes
        while begin < len(data):
            if not batch.should_continue():
                raise Abandoned
            end = cut_points.find_end(data, begin, size)
            content = self.encoder.encode(_batch(data[begin:end]), replace(options, spans=True))
            is_last = end == len(data)
            error = content.errors.get(0)
            if error and (is_last or cut_points.is_certain(error, end - begin)):
                return _refuse(data, error, begin, options)
            kept = len(content.ids) if is_last else cut_points.count_kept(content, end - begin)
            if not is_last and not kept:
                size *= 2
                continue
            assert content.spans is not None
            cut = end if is_last else begin + int(content.spans[kept - 1, 1])
            encoded.add(_Piece(begin, cut, kept), content.ids, content.spans)
            begin, size = cut, self.piece_bytes
        return encoded.content()

    def _encode_run_row(
        self, cut_points: CutPoints, batch: Batch, data: Bytes, options: EncodeOptions
    ) -> Content:
        """Encode a row in pieces that end at borders or inside runs."""
        encoded = _EncodedRow(len(data), options.spans, self.take)
        begin, size = 0, self.piece_bytes
        while begin < len(data):
            if not batch.should_continue():
                raise Abandoned
            end, is_border = cut_points.find_end(data, begin, size)
            content = self.encoder.encode(_batch(data[begin:end]), options)
            if content.errors:
                return _refuse(data, content.errors[0], begin, options)
            tail = encoded.pieces[-1].tail if encoded.pieces else ()
            if not self._joins(data, begin, tail, content.ids):
                last = encoded.pop()
                begin, size = last.begin, 2 * max(size, last.end - last.begin)
                continue
            piece: _Piece | None = _Piece(begin, end, len(content.ids))
            if not is_border:
                piece = self._shorten(cut_points, data, begin, end, content.ids)
            if piece is None:
                size *= 2
                continue
            encoded.add(piece, content.ids, content.spans)
            begin, size = piece.end, self.piece_bytes
        return encoded.content()

    def _shorten(
        self, cut_points: CutPoints, data: Bytes, piece_begin: int, end: int, ids: Ids
    ) -> _Piece | None:
        """Drop the last tokens of a piece that ends in a run; None if it cannot be cut there."""
        place = end
        for num_ids in range(len(ids) - 1, max(0, len(ids) - MAX_BACK), -1):
            begin = self._find_token(data, place, int(ids[num_ids]))
            if begin is None:
                return None
            place = begin
            if end - place < MIN_DROPPED_BYTES:
                continue
            if not cut_points.may_cut_run(data, piece_begin, place):
                continue
            if tail := self._last_ids(data, place, ids[:num_ids]):
                return _Piece(piece_begin, place, num_ids, tail)
        return None

    def _find_token(self, data: Bytes, end: int, token_id: int) -> int | None:
        """Return the begin of a token that ends at a position; None if other bytes precede it."""
        token = self.tokens[token_id]
        if not token or data[max(0, end - len(token)) : end].tobytes() != token:
            return None
        return end - len(token)

    def _last_ids(self, data: Bytes, end: int, ids: Ids) -> tuple[int, ...]:
        """Return the last ids that spell whole characters; () if too long, or other bytes."""
        begin = end
        for size in range(1, min(len(ids), MAX_SIDE) + 1):
            earlier = self._find_token(data, begin, int(ids[-size]))
            if earlier is None or end - earlier > MAX_SIDE:
                return ()
            begin = earlier
            if _begins_character(data, begin):
                return tuple(ids[-size:].tolist())
        return ()

    def _joins(self, data: Bytes, place: int, tail: tuple[int, ...], ids: Ids) -> bool:
        """Return whether the text of the ids around a cut encodes to the same ids."""
        if not tail:
            return True
        head = []
        end = place
        for token_id in ids[:MAX_SIDE].tolist():
            head.append(token_id)
            end += len(self.tokens[token_id] or b"")
            if end - place > MAX_SIDE or self._find_token(data, end, token_id) is None:
                return False
            if _begins_character(data, end):
                break
        begin = place - sum(len(self.tokens[token_id] or b"") for token_id in tail)
        joined = self.encoder.encode(_batch(data[begin:end]), PLAIN)
        return bool(joined.ids.tolist() == [*tail, *head])


def _sizes(batch: Batch) -> NDArray[np.int64]:
    """Return the length of each row, int64[B], in bytes, or in characters for strings."""
    if not batch.has_texts:
        return np.diff(batch.offsets)
    texts, _ = batch.texts()
    return np.fromiter(map(len, texts), np.int64, len(batch))


def _row_array(batch: Batch, row: int, take: Take) -> Bytes:
    """Return a row as uint8[N]; convert a string in parts, between which other threads can run."""
    if not batch.has_texts:
        return batch.data[batch.offsets[row] : batch.offsets[row + 1]]
    texts, _ = batch.texts()
    text = texts[row]
    data = GrowableArray(np.dtype(np.uint8), take)
    for begin in range(0, len(text), PART_CHARACTERS):
        end = min(begin + PART_CHARACTERS, len(text))
        part = np.frombuffer(text[begin:end].encode(), np.uint8)
        expected = (data.size + len(part)) * len(text) // end + MARGIN
        data.extend(len(part), expected)[:] = part
    return data.array


def _batch(data: Bytes) -> Batch:
    return Batch(data=data, offsets=np.array([0, len(data)]))


def _begins_character(data: Bytes, place: int) -> bool:
    return place == len(data) or bool((data[place] & 0xC0) != 0x80)


def _refuse(data: Bytes, error: RowError, begin: int, options: EncodeOptions) -> Content:
    """Refuse a row for its piece's error, or for bytes from `begin` on that are not UTF-8."""
    _, utf8_errors = _batch(data[begin:]).texts()
    error = utf8_errors.get(0, error)
    word, _, byte = error.where.partition(" ")
    if word == "byte":
        error = replace(error, where=f"byte {begin + int(byte)}")
    spans = np.zeros((0, 2), np.int64) if options.spans else None
    return Content(np.zeros(0, np.int32), np.zeros(2, np.int64), spans, {0: error})
