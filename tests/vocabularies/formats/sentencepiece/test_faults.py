"""Damaged SentencePiece models and configurations: an error with a place, never another one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.formats.sentencepiece.model_file import parse_model

MODELS = Path(__file__).parent / "models"
CONTENTS = [path.read_bytes() for path in sorted(MODELS.glob("*.model"))]
LLAMA = {"tokenizer_config.json": b'{"tokenizer_class": "LlamaTokenizer"}'}


def field(number: int, value: int | bytes) -> bytes:
    """Write a field of a number or of bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def piece(text: str | bytes, score: float = 0.0, kind: int = 1) -> bytes:
    content = text.encode() if isinstance(text, str) else text
    number = varint(2 << 3 | 5) + struct.pack("<f", score)
    return field(1, field(1, content) + number + field(3, kind))


def bpe(*pieces: bytes, trainer: bytes = b"", normalizer: bytes = b"") -> bytes:
    content = b"".join((piece("<unk>", kind=2), *pieces))
    return content + field(2, field(3, 2) + trainer) + field(3, normalizer)


def findings(content: bytes, **files: bytes) -> list[tuple[str, str]]:
    with pytest.raises(VocabularyError) as caught:
        read_vocabulary({"tokenizer.model": content, **files})
    return [(finding.where, finding.message) for finding in caught.value.findings]


@given(st.data())
def test_mutated_bytes_never_raise_anything_else(data):
    content = bytearray(data.draw(st.sampled_from(CONTENTS)))
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(content) - 1))
        end = begin + data.draw(st.integers(0, 3))
        content[begin:end] = data.draw(st.binary(max_size=4))
    beside = data.draw(st.sampled_from([{}, LLAMA]))
    try:
        read_vocabulary({"tokenizer.model": bytes(content)} | beside, format="sentencepiece")
    except VocabularyError as error:
        assert all(finding.where for finding in error.findings)


@given(st.binary(max_size=40))
def test_any_bytes_are_refused_with_a_place(content):
    with pytest.raises(VocabularyError, match=r"^(byte \d+|pieces(\[\d+\])?)"):
        parse_model(content)


@pytest.mark.parametrize(
    ("content", "where", "message"),
    [
        (b"\x0a\x80", "byte 1", "a number has no end"),
        (b"\x0a\x05abc", "byte 2", "a field has 5 bytes, but only 3 follow"),
        (b"\x0b", "byte 1", "3 is not a wire type"),
        (piece(b"\xff"), "byte 4", "pieces[0] is not UTF-8"),
        (field(1, 7), "byte 1", "pieces has the wire type 0"),
        (piece("a", float("nan")), "pieces[0]", "its score is nan"),
        (piece("a", kind=9), "pieces[0]", "its type is 9, not 1..6"),
        (piece(""), "pieces[0]", "is empty"),
        (field(2, b""), "pieces", "has none"),
        (piece("a"), "pieces", "0 pieces are of the type unknown, not one"),
        (bpe(piece("a"), piece("a")), "pieces[2]", "'a' is also pieces[1]"),
        (bpe(piece("x" * 1001)), "pieces[1]", "has 1001 characters"),
        (bpe(trainer=field(35, 1)), "pieces", "byte_fallback needs the 256 pieces"),
        (bpe(piece("<0x41>", kind=6)), "trainer_spec.byte_fallback", "is false, but"),
        (bpe(piece("ab")), "pieces[1]", "'ab' has a character that is no piece"),
        (
            bpe(piece("a"), piece("b"), piece("ab", -1), piece("ba", -1)),
            "pieces[4]",
            "has the same score as another merged piece",
        ),
        (
            bpe(piece("a"), piece("b"), piece("ab", -1, kind=5)),
            "pieces[3]",
            "'ab' is unused, but merged from other pieces",
        ),
        (bpe(normalizer=field(5, 0)), "normalizer_spec.escape_whitespaces", "not read"),
        (bpe(piece("a b", kind=4)), "pieces[1]", "is user-defined, and the normalizer"),
        (bpe() + field(5, field(2, b"rules")), "denormalizer_spec", "are not read"),
    ],
)
def test_a_fault_is_named_with_its_place(content, where, message):
    [(found, reason)] = findings(content)
    assert found == where
    assert message in reason


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"tokenizer_class": "NoTokenizer"}, "tokenizer_class"),
        ({"tokenizer_class": 7}, "tokenizer_class"),
        ({"tokenizer_class": "LlamaTokenizer", "legacy": "no"}, "legacy"),
        ({"tokenizer_class": "LlamaTokenizer", "bos_token": 7}, "bos_token"),
        ({"tokenizer_class": "LlamaTokenizer", "bos_token": None}, "bos_token"),
        (
            {"tokenizer_class": "LlamaTokenizer", "additional_special_tokens": "x"},
            "additional_special_tokens",
        ),
        ({"tokenizer_class": "T5Tokenizer", "extra_ids": -1}, "extra_ids"),
        (
            {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {"9": "<x>"}},
            "added_tokens_decoder.9",
        ),
        (
            {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {"x": "<x>"}},
            "added_tokens_decoder.x",
        ),
        (
            {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": [1]},
            "added_tokens_decoder",
        ),
    ],
)
def test_a_fault_of_the_configuration_is_named(config: dict[str, Any], where):
    model = (MODELS / "bpe_llama.model").read_bytes()
    files = {"tokenizer_config.json": json.dumps(config).encode()}
    [(found, _)] = findings(model, **files)
    assert found == f"tokenizer_config.json: {where}"


def test_a_model_that_would_take_too_long_or_too_much_memory_is_refused():
    pieces = [piece("a" * size, -size) for size in range(1, 1001)]
    for files in ({}, LLAMA):
        [(where, message)] = findings(bpe(*pieces), **files)
        assert where == "pieces"
        assert "their merges have more than" in message
    assert len(findings(bpe(piece("a") * 200))) == 100


def test_a_user_defined_symbol_keeps_its_id_where_its_byte_is_a_piece():
    pieces = [piece(f"<0x{byte:02X}>", kind=6) for byte in range(256)]
    pieces += [piece("\t", kind=4), piece("a"), piece("\t\t", -1)]
    vocabulary = read_vocabulary({"tokenizer.model": bpe(*pieces, trainer=field(35, 1))})
    document = json.loads(vocabulary.model.tokenizer_json)["model"]
    assert (document["vocab"]["\t"], document["vocab"]["<0x09>"]) == (257, 10)
    assert document["merges"] == []


def test_a_character_whose_byte_is_a_piece_is_merged_under_the_id_of_the_byte():
    pieces = [piece(f"<0x{byte:02X}>", kind=6) for byte in range(256)]
    model = bpe(*pieces, piece("a"), piece("\t\t", -1), trainer=field(35, 1))
    vocabulary = read_vocabulary({"tokenizer.model": model})
    assert vocabulary.file_string(10) == "<0x09>"
    document = json.loads(vocabulary.model.tokenizer_json)["model"]
    assert document["vocab"]["\t"] == 10
    assert document["merges"] == [["\t", "\t"]]
