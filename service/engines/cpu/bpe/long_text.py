"""Long rows of BPE vocabularies in pieces: one text takes little memory and lets others run.

    text ──► piece ─ up to a border ──────────────► its ids
        └──► piece ─ inside of a run ─► its ids but the last ones ─┐
             next piece, from where those ended ◄──────────────────┘  enc(l r) = l r?

In a run nothing says where a piece may end but its tokens. The last ones are wrong for sure, as
the text is cut off there, so that they are left to the next piece. Where the last kept token l and
the next piece's first one r are enc of what they spell, all ids are those of the whole
(docs/internals/text-bpe.md, "Pairs decide"); where not, the piece before is made again, twice as
large.
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
PIECE_BYTES = 1 << 18  # Some milliseconds of fastokens.
LEFT_BYTES = 64  # What a piece that ends in a run leaves to the next one, at least.
PART = 1 << 20  # Characters.
MARGIN = 1 << 16  # Ids that a row may have more than its first pieces let expect.
MAX_BACK = 256  # Tokens at a piece's end among which a place to cut behind is looked for.
MAX_SIDE = RUN_BYTES // 2  # Bytes of the tokens on one side of a cut.
ALONE = EncodeOptions(add_special_tokens=False, special="plain")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a row.

    Attributes:
        begin, end: its bytes.
        num_ids: of it.
        tail: its last ids, of whole characters, where it ends inside of a run; () at a border.
    """

    begin: int
    end: int
    num_ids: int
    tail: tuple[int, ...] = ()


class _Row:
    """The ids of a row, piece by piece, in lent memory.

    As arrays of their own until the end, the pieces took fresh memory each, whose pages the system
    had to give and to take again while all other threads waited.

    Attributes:
        pieces: all of them, in order.
    """

    def __init__(self, num_bytes: int, with_spans: bool, take: Take) -> None:
        self.num_bytes, self.with_spans, self.take = num_bytes, with_spans, take
        self.pieces: list[_Piece] = []
        self.ids: GrowableArray | None = None
        self.spans = GrowableArray(np.dtype(np.int64), take, (2,))

    def add(self, piece: _Piece, ids: Ids, spans: NDArray[np.int64] | None) -> None:
        """The next piece; of its ids and spans the first `num_ids` count."""
        if self.ids is None:
            self.ids = GrowableArray(ids.dtype, self.take)
        num = piece.num_ids
        expected = (self.ids.size + num) * self.num_bytes // piece.end + MARGIN
        self.ids.extend(num, expected)[:] = ids[:num]
        if self.with_spans and spans is not None:
            np.add(spans[:num], piece.begin, out=self.spans.extend(num, expected))
        self.pieces.append(piece)

    def take_back(self) -> _Piece:
        """The last piece, which is to be made anew."""
        assert self.ids is not None
        piece = self.pieces.pop()
        self.ids.size -= piece.num_ids
        if self.with_spans:
            self.spans.size -= piece.num_ids
        return piece

    def content(self) -> Content:
        """All of it."""
        assert self.ids is not None
        offsets = np.array([0, self.ids.size])
        return Content(self.ids.array, offsets, self.spans.array if self.with_spans else None)


class LongTextEncoder:
    """Encodes batches with an encoder that gets long rows in pieces; safe for several threads.

    Args:
        vocabulary: what the encoder encodes for.
        encoder: gives the ids of texts.
        take: gives memory for the ids of long rows.
        piece_bytes: of a text at once, where it can be cut.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoder: Encoder,
        take: Take,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.tokens, self.encoder = vocabulary.tokens, encoder
        self.take, self.piece_bytes = take, piece_bytes
        self.places = CutPoints.of(vocabulary)
        self.motifs = MotifCutPoints.of(vocabulary)

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """The ids of each row, without begin and end tokens; all rows have these options.

        Raises:
            Abandoned: nobody wants them any more.
        """
        if not (self.places or self.motifs):
            return self.encoder.encode(batch, options)
        is_long = _sizes(batch) > self.piece_bytes
        if len(batch) == 1 and is_long[0]:
            return self._row(batch, 0, options)
        parts = [
            (np.array([row]), self._row(batch, row, options))
            for row in np.flatnonzero(is_long).tolist()
        ]
        short = np.flatnonzero(~is_long)
        if len(short):
            others = batch.select(short.tolist() if parts else range(len(batch)), options)
            parts.append((short, self.encoder.encode(others, options)))
        return join_rows(parts, len(batch)) if len(parts) > 1 else parts[0][1]

    def _row(self, batch: Batch, row: int, options: EncodeOptions) -> Content:
        """The content of one long row."""
        data = _row_array(batch, row, self.take)
        if self.motifs:
            return self._motif_row(self.motifs, batch, data, options)
        assert self.places is not None
        return self._run_row(self.places, batch, data, options)

    def _motif_row(
        self, places: MotifCutPoints, batch: Batch, data: Bytes, options: EncodeOptions
    ) -> Content:
        """The content of a row that is cut behind motifs."""
        made = _Row(len(data), options.spans, self.take)
        begin, size = 0, self.piece_bytes
        while begin < len(data):
            if not batch.should_continue():
                raise Abandoned
            end = places.piece_end(data, begin, size)
            content = self.encoder.encode(_batch(data[begin:end]), replace(options, spans=True))
            is_last, error = end == len(data), content.errors.get(0)
            if error and (is_last or places.is_sure(error, end - begin)):
                return _refused(data, error, begin, options)
            kept = len(content.ids) if is_last else places.num_kept(content, end - begin)
            if not is_last and not kept:
                size *= 2
                continue
            assert content.spans is not None
            cut = end if is_last else begin + int(content.spans[kept - 1, 1])
            made.add(_Piece(begin, cut, kept), content.ids, content.spans)
            begin, size = cut, self.piece_bytes
        return made.content()

    def _run_row(
        self, places: CutPoints, batch: Batch, data: Bytes, options: EncodeOptions
    ) -> Content:
        """The content of a row that is cut at borders and inside of runs."""
        made = _Row(len(data), options.spans, self.take)
        begin, size = 0, self.piece_bytes
        while begin < len(data):
            if not batch.should_continue():
                raise Abandoned
            end, is_border = places.piece_end(data, begin, size)
            content = self.encoder.encode(_batch(data[begin:end]), options)
            if content.errors:
                return _refused(data, content.errors[0], begin, options)
            if made.pieces and not self._fits(data, begin, made.pieces[-1].tail, content.ids):
                last = made.take_back()
                begin, size = last.begin, 2 * max(size, last.end - last.begin)
                continue
            piece: _Piece | None = _Piece(begin, end, len(content.ids))
            if not is_border:
                piece = self._cut_back(places, data, begin, end, content.ids)
            if piece is None:
                size *= 2
                continue
            made.add(piece, content.ids, content.spans)
            begin, size = piece.end, self.piece_bytes
        return made.content()

    def _cut_back(
        self, places: CutPoints, data: Bytes, piece_begin: int, end: int, ids: Ids
    ) -> _Piece | None:
        """The piece up to one of its last tokens inside of the run; None where none will do."""
        place = end
        for num_ids in range(len(ids) - 1, max(0, len(ids) - MAX_BACK), -1):
            begin = self._begin(data, place, int(ids[num_ids]))
            if begin is None:
                return None
            place = begin
            if end - place < LEFT_BYTES or not places.may_cut_run(data, piece_begin, place):
                continue
            if tail := self._tail(data, place, ids[:num_ids]):
                return _Piece(piece_begin, place, num_ids, tail)
        return None

    def _begin(self, data: Bytes, end: int, token_id: int) -> int | None:
        """Where a token begins that ends at a place; None where it spells something else."""
        token = self.tokens[token_id]
        if not token or data[max(0, end - len(token)) : end].tobytes() != token:
            return None
        return end - len(token)

    def _tail(self, data: Bytes, end: int, ids: Ids) -> tuple[int, ...]:
        """The last ids, of whole characters; () where they are long or spell something else."""
        begin = end
        for size in range(1, min(len(ids), MAX_SIDE) + 1):
            earlier = self._begin(data, begin, int(ids[-size]))
            if earlier is None or end - earlier > MAX_SIDE:
                return ()
            begin = earlier
            if _begins_character(data, begin):
                return tuple(ids[-size:].tolist())
        return ()

    def _fits(self, data: Bytes, place: int, tail: tuple[int, ...], ids: Ids) -> bool:
        """Whether the ids in front of a place and those behind it are enc of what they spell."""
        if not tail:
            return True
        head, end = [], place
        for token_id in ids[:MAX_SIDE].tolist():
            head.append(token_id)
            end += len(self.tokens[token_id] or b"")
            if end - place > MAX_SIDE or self._begin(data, end, token_id) is None:
                return False
            if _begins_character(data, end):
                break
        begin = place - sum(len(self.tokens[token_id] or b"") for token_id in tail)
        alone = self.encoder.encode(_batch(data[begin:end]), ALONE)
        return bool(alone.ids.tolist() == [*tail, *head])


def _sizes(batch: Batch) -> NDArray[np.int64]:
    """int64[B]: the length of each row, in bytes, or in characters where it is text."""
    if not batch.has_texts:
        return np.diff(batch.offsets)
    return np.fromiter(map(len, batch.texts()[0]), np.int64, len(batch))


def _row_array(batch: Batch, row: int, take: Take) -> Bytes:
    """uint8[N]: one text; a string is encoded in parts, as each keeps other threads waiting."""
    if not batch.has_texts:
        return batch.data[batch.offsets[row] : batch.offsets[row + 1]]
    text = batch.texts()[0][row]
    data = GrowableArray(np.dtype(np.uint8), take)
    for begin in range(0, len(text), PART):
        part = np.frombuffer(text[begin : begin + PART].encode(), np.uint8)
        expected = (data.size + len(part)) * len(text) // min(begin + PART, len(text)) + MARGIN
        data.extend(len(part), expected)[:] = part
    return data.array


def _batch(data: Bytes) -> Batch:
    return Batch(data=data, offsets=np.array([0, len(data)]))


def _begins_character(data: Bytes, place: int) -> bool:
    return place == len(data) or bool((data[place] & 0xC0) != 0x80)


def _refused(data: Bytes, error: RowError, begin: int, options: EncodeOptions) -> Content:
    """A row that is refused for what is in the piece that begins there, for its UTF-8 first."""
    error = _batch(data[begin:]).texts()[1].get(0, error)
    word, _, byte = error.where.partition(" ")
    if word == "byte":
        error = replace(error, where=f"byte {begin + int(byte)}")
    spans = np.zeros((0, 2), np.int64) if options.spans else None
    return Content(np.zeros(0, np.int32), np.zeros(2, np.int64), spans, {0: error})
