"""Long rows of BPE vocabularies in pieces: one text takes little memory and lets others run.

    text ──► piece ─ up to a border ──────────────► its ids
        └──► piece ─ inside of a run ─► its ids but the last ones ─┐
             next piece, from where those ended ◄──────────────────┘  enc(l r) = l r?

In a run nothing says where a piece may end but its tokens. The last ones are wrong for sure, as
the text is cut off there, so that they are left to the next piece. Where the last kept token l and
the next piece's first one r are enc of what they spell, all ids are those of the whole
(gpu/README.md, "Pairs decide"); where not, the piece before is made again, twice as large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.cut_places import RUN_BYTES, CutPlaces
from service.encoders import Encoder
from service.engines import Abandoned
from service.motif_rows import MotifPlaces
from vocabularies.batch import Batch, EncodeOptions, RowError
from vocabularies.framing import Content, join_rows
from vocabularies.vocabulary import Vocabulary

__all__ = ["PIECE_BYTES", "LongRows"]

Bytes = NDArray[np.uint8]
Ids = NDArray[np.integer[Any]]
PIECE_BYTES = 1 << 18  # Some milliseconds of fastokens.
LEFT_BYTES = 64  # What a piece that ends in a run leaves to the next one, at least.
PART = 1 << 20  # Characters.
MAX_BACK = 256  # Tokens at a piece's end among which a place to cut behind is looked for.
MAX_SIDE = RUN_BYTES // 2  # Bytes of the tokens on one side of a cut.
ALONE = EncodeOptions(add_special_tokens=False, special="plain")


@dataclass(frozen=True, slots=True)
class _Piece:
    """The ids of a part of a row.

    Attributes:
        begin, end: its bytes.
        tail: its last ids, of whole characters, where it ends inside of a run; () at a border.
    """

    begin: int
    end: int
    ids: Ids
    spans: NDArray[np.int64] | None
    tail: tuple[int, ...] = ()


class LongRows:
    """Encodes batches with an encoder that gets long rows in pieces; safe for several threads.

    Args:
        vocabulary: what the encoder encodes for.
        encoder: gives the ids of texts.
        piece_bytes: of a text at once, where it can be cut.
    """

    def __init__(
        self, vocabulary: Vocabulary, encoder: Encoder, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self.tokens, self.encoder, self.piece_bytes = vocabulary.tokens, encoder, piece_bytes
        self.places = CutPlaces.of(vocabulary)
        self.motifs = MotifPlaces.of(vocabulary)

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """The ids of each row, without begin and end tokens; all rows have these options.

        Raises:
            Abandoned: nobody wants them any more.
        """
        if not (self.places or self.motifs) or not batch.has_bytes(self.piece_bytes + 1):
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
        data = _row_array(batch, row)
        if self.motifs:
            return self._motif_row(self.motifs, batch, data, options)
        assert self.places is not None
        return self._run_row(self.places, batch, data, options)

    def _motif_row(
        self, places: MotifPlaces, batch: Batch, data: Bytes, options: EncodeOptions
    ) -> Content:
        """The content of a row that is cut behind motifs."""
        pieces: list[_Piece] = []
        begin, size = 0, self.piece_bytes
        while begin < len(data):
            if not batch.is_wanted():
                raise Abandoned
            end = places.piece_end(data, begin, size)
            content = self.encoder.encode(_batch(data[begin:end]), replace(options, spans=True))
            is_last, error = end == len(data), content.errors.get(0)
            if error and (is_last or places.is_sure(error, end - begin)):
                return _refused(error, begin, options)
            kept = len(content.ids) if is_last else places.num_kept(content, end - begin)
            if not is_last and not kept:
                size *= 2
                continue
            assert content.spans is not None
            spans, size = content.spans[:kept], self.piece_bytes
            cut = end if is_last else begin + int(spans[-1, 1])
            pieces.append(_Piece(begin, cut, content.ids[:kept], spans if options.spans else None))
            begin = cut
        return _joined(pieces)

    def _run_row(
        self, places: CutPlaces, batch: Batch, data: Bytes, options: EncodeOptions
    ) -> Content:
        """The content of a row that is cut at borders and inside of runs."""
        pieces: list[_Piece] = []
        begin, size = 0, self.piece_bytes
        while begin < len(data):
            if not batch.is_wanted():
                raise Abandoned
            end, is_border = places.piece_end(data, begin, size)
            content = self.encoder.encode(_batch(data[begin:end]), options)
            if content.errors:
                return _refused(content.errors[0], begin, options)
            if pieces and not self._fits(data, begin, pieces[-1].tail, content.ids):
                last = pieces.pop()
                begin, size = last.begin, 2 * max(size, last.end - last.begin)
                continue
            piece = _Piece(begin, end, content.ids, content.spans)
            shorter = piece if is_border else self._cut_back(places, data, piece)
            if shorter is None:
                size *= 2
                continue
            pieces.append(shorter)
            begin, size = shorter.end, self.piece_bytes
        return _joined(pieces)

    def _cut_back(self, places: CutPlaces, data: Bytes, piece: _Piece) -> _Piece | None:
        """The piece up to one of its last tokens inside of the run; None where none will do."""
        place = piece.end
        for num_ids in range(len(piece.ids) - 1, max(0, len(piece.ids) - MAX_BACK), -1):
            begin = self._begin(data, place, int(piece.ids[num_ids]))
            if begin is None:
                return None
            place = begin
            if piece.end - place < LEFT_BYTES or not places.is_inside_run(data, place):
                continue
            ids = piece.ids[:num_ids]
            tail = self._tail(data, place, ids)
            if tail:
                spans = None if piece.spans is None else piece.spans[:num_ids]
                return _Piece(piece.begin, place, ids, spans, tail)
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


def _row_array(batch: Batch, row: int) -> Bytes:
    """uint8[N]: one text; a string is encoded in parts, as each keeps other threads waiting."""
    if not batch.has_texts:
        return batch.data[batch.offsets[row] : batch.offsets[row + 1]]
    text = batch.texts()[0][row]
    parts = [text[i : i + PART].encode() for i in range(0, len(text), PART)]
    return np.concatenate([np.frombuffer(part, np.uint8) for part in parts])


def _batch(data: Bytes) -> Batch:
    return Batch(data=data, offsets=np.array([0, len(data)]))


def _begins_character(data: Bytes, place: int) -> bool:
    return place == len(data) or bool((data[place] & 0xC0) != 0x80)


def _refused(error: RowError, begin: int, options: EncodeOptions) -> Content:
    """A row that is refused for something in the piece that begins there."""
    word, _, byte = error.where.partition(" ")
    if word == "byte":
        error = replace(error, where=f"byte {begin + int(byte)}")
    spans = np.zeros((0, 2), np.int64) if options.spans else None
    return Content(np.zeros(0, np.int32), np.zeros(2, np.int64), spans, {0: error})


def _joined(pieces: list[_Piece]) -> Content:
    """All pieces, copied one by one: at once, other threads would wait for all of the memory."""
    total = sum(len(piece.ids) for piece in pieces)
    ids = np.empty(total, pieces[0].ids.dtype)
    spans = None if pieces[0].spans is None else np.empty((total, 2), np.int64)
    end = 0
    for piece in pieces:
        begin, end = end, end + len(piece.ids)
        ids[begin:end] = piece.ids
        if spans is not None and piece.spans is not None:
            np.add(piece.spans, piece.begin, out=spans[begin:end])
    return Content(ids, np.array([0, total]), spans)
