"""Parses the protobuf of a SentencePiece model, sentencepiece_model.proto's ModelProto.

A message is a list of fields. Each begins with the varint number << 3 | wire type; its value is a
varint (wire type 0), 8 or 4 bytes (1, 5), or a varint and as many bytes (2). Messages contain no
other messages deeper than two levels, so nothing here is recursive, and each byte is read at most
twice.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from vocabularies.errors import VocabularyError
from vocabularies.formats.parsing import MAX_TOKENS

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
_MAX_VARINT = 10  # Bytes.


class ModelType(IntEnum):
    """How a model splits a text into pieces."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


class PieceType(IntEnum):
    """What a piece is for; a text is split into normal and user-defined pieces only."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """A piece of the vocabulary; its id is its place in the list."""

    text: str
    score: float
    type: PieceType


@dataclass(slots=True)
class ModelFile:
    """The parts of a SentencePiece model that determine ids; the values are the file's defaults.

    Attributes:
        charsmap: the compiled normalization rules; b"" for none.
        denormalizer: the rules that decoding applies; b"" for none.
    """

    pieces: list[Piece] = field(default_factory=list)
    type: int = ModelType.UNIGRAM
    byte_fallback: bool = False
    whitespace_is_suffix: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    unk_piece: str = "<unk>"
    unk_surface: str = " \u2047 "
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    denormalizer: bytes = b""

    def texts(self, *types: PieceType) -> list[str]:
        """List the pieces of some types."""
        return [piece.text for piece in self.pieces if piece.type in types]


class Field(NamedTuple):
    """A field of a message; `begin` is the place of its value in the file."""

    number: int
    wire_type: int
    value: int | bytes
    begin: int


def is_sentencepiece(data: bytes) -> bool:
    """Return whether a file begins like a ModelProto: with a message of a string and a score."""
    if len(data) < 4 or data[0] != 0x0A or data[2] != 0x0A:
        return False
    return data[4 + data[3] : 5 + data[3]] == b"\x15"


def parse_model(data: bytes) -> ModelFile:
    """Parse a SentencePiece model.

    Raises:
        VocabularyError: the file is damaged, or it has no pieces.
    """
    model = ModelFile()
    for part in _fields(data, 0):
        match part.number:
            case 1:
                model.pieces.append(_piece(*_message(part, "pieces"), len(model.pieces)))
            case 2:
                _read_trainer(model, *_message(part, "trainer_spec"))
            case 3:
                _read_normalizer(model, *_message(part, "normalizer_spec"))
            case 5:
                content, begin = _message(part, "denormalizer_spec")
                for inner in _fields(content, begin):
                    if inner.number == 2:
                        model.denormalizer, _ = _message(inner, "precompiled_charsmap")
        if len(model.pieces) > MAX_TOKENS:
            raise VocabularyError.at("pieces", f"more than {MAX_TOKENS}")
    if not model.pieces:
        raise VocabularyError.at("pieces", "has none, so this is not a SentencePiece model")
    return model


def _read_trainer(model: ModelFile, content: bytes, begin: int) -> None:
    for part in _fields(content, begin):
        match part.number:
            case 3:
                model.type = _integer(part, "model_type")
            case 24:
                model.whitespace_is_suffix = bool(_integer(part, "treat_whitespace_as_suffix"))
            case 35:
                model.byte_fallback = bool(_integer(part, "byte_fallback"))
            case 40:
                model.unk_id = _integer(part, "unk_id")
            case 41:
                model.bos_id = _integer(part, "bos_id")
            case 42:
                model.eos_id = _integer(part, "eos_id")
            case 43:
                model.pad_id = _integer(part, "pad_id")
            case 45:
                model.unk_piece = _text(part, "unk_piece")
            case 44:
                model.unk_surface = _text(part, "unk_surface")


def _read_normalizer(model: ModelFile, content: bytes, begin: int) -> None:
    for part in _fields(content, begin):
        match part.number:
            case 2:
                model.charsmap, _ = _message(part, "precompiled_charsmap")
            case 3:
                model.add_dummy_prefix = bool(_integer(part, "add_dummy_prefix"))
            case 4:
                model.remove_extra_whitespaces = bool(_integer(part, "remove_extra_whitespaces"))
            case 5:
                model.escape_whitespaces = bool(_integer(part, "escape_whitespaces"))


def _piece(content: bytes, begin: int, place: int) -> Piece:
    text, score, kind = "", 0.0, 1
    for part in _fields(content, begin):
        match part.number:
            case 1:
                text = _text(part, f"pieces[{place}]")
            case 2 if part.wire_type == FOUR_BYTES:
                (score,) = struct.unpack("<f", _message(part, "score", FOUR_BYTES)[0])
            case 2:
                raise _damaged(part.begin, "a score is not a float")
            case 3:
                kind = _integer(part, "type")
    if not text:
        raise VocabularyError.at(f"pieces[{place}]", "is empty")
    if not math.isfinite(score):
        raise VocabularyError.at(f"pieces[{place}]", f"its score is {score}")
    try:
        return Piece(text, score, PieceType(kind))
    except ValueError as error:
        raise VocabularyError.at(f"pieces[{place}]", f"its type is {kind}, not 1..6") from error


def _fields(data: bytes, origin: int) -> Iterator[Field]:
    """Yield the fields of a message that begins at the byte `origin` of the file."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place, origin)
        number, wire_type = key >> 3, key & 7
        begin = place
        if wire_type == VARINT:
            value, place = _varint(data, place, origin)
            yield Field(number, wire_type, value, origin + begin)
            continue
        if wire_type == BYTES:
            size, begin = _varint(data, place, origin)
        elif wire_type in (EIGHT_BYTES, FOUR_BYTES):
            size = 8 if wire_type == EIGHT_BYTES else 4
        else:
            raise _damaged(origin + place, f"{wire_type} is not a wire type")
        place = begin + size
        if place > len(data):
            raise _damaged(
                origin + begin, f"a field has {size} bytes, but only {len(data) - begin} follow"
            )
        yield Field(number, wire_type, data[begin:place], origin + begin)


def _varint(data: bytes, place: int, origin: int) -> tuple[int, int]:
    """Return the varint at a place of a message, and the place behind it."""
    value = 0
    for shift, byte in enumerate(data[place : place + _MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, place + shift + 1
    raise _damaged(origin + place, "a number has no end")


def _message(part: Field, name: str, wire_type: int = BYTES) -> tuple[bytes, int]:
    """Return the bytes of a field, and their place in the file."""
    if part.wire_type != wire_type or not isinstance(part.value, bytes):
        raise _damaged(part.begin, f"{name} has the wire type {part.wire_type}")
    return part.value, part.begin


def _text(part: Field, name: str) -> str:
    content, begin = _message(part, name)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _damaged(begin + error.start, f"{name} is not UTF-8") from error


def _integer(part: Field, name: str) -> int:
    """Return an int32, which is written as 64 bits if it is negative."""
    if not isinstance(part.value, int):
        raise _damaged(part.begin, f"{name} is not a number")
    value = part.value & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _damaged(byte: int, message: str) -> VocabularyError:
    return VocabularyError.at(f"byte {byte}", f"is not a SentencePiece model: {message}")
