"""Ids of a tokenizer.json are decoded as by the library tokenizers, whatever the file's decoder."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from service.engines.cpu.engine import CpuEngine
from tests.support.inputs.tokenizer_documents import BYTES, document, encoded
from vocabularies.builtin import load
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model.canonical import to_bytes
from vocabularies.model.types import Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

ENGINE = CpuEngine()
LETTERS = {"a": 0, "b": 1, "é": 2, "Ġ": 3, " ": 4, "▁": 5, "ab": 6, "</w>": 7, "é ": 8, "abab": 9}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
BYTE_LEVEL["use_regex"] = True
FUSE = {"type": "Fuse"}
REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
DECODERS: list[dict[str, Any] | None] = [
    None,
    BYTE_LEVEL,
    FUSE,
    {"type": "BPEDecoder", "suffix": "</w>"},
    {"type": "BPEDecoder", "suffix": "z"},
    {"type": "BPEDecoder", "suffix": " "},
    {"type": "BPEDecoder", "suffix": ""},
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "ByteFallback"},
    {"type": "Strip", "content": "a", "start": 1, "stop": 0},
    REPLACE,
    {"type": "Sequence", "decoders": []},
    {"type": "Sequence", "decoders": [BYTE_LEVEL]},
    {"type": "Sequence", "decoders": [BYTE_LEVEL, FUSE]},
    {"type": "Sequence", "decoders": [FUSE, BYTE_LEVEL]},
    {"type": "Sequence", "decoders": [REPLACE, {"type": "ByteFallback"}, FUSE]},
]


def added(content: str, token_id: int, special: bool = True) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": content, "special": special, **flags}


def make_document(decoder: dict[str, Any] | None, *, byte_level: bool) -> dict[str, Any]:
    """Make a file with special and added tokens, some of them outside the byte alphabet."""
    vocab = BYTES | {"ab": 256, "Ġab": 257} if byte_level else LETTERS
    size = len(vocab)
    tokens = [added("<s>", size), added("Ġé!", size + 1, False), added("中 x", size + 2)]
    merges = ["a b", "Ġ ab"] if byte_level else ["a b", "ab ab"]
    return document(vocab, merges, byte_level=byte_level, added_tokens=tokens, decoder=decoder)


def decode(vocabulary: Vocabulary, rows: list[list[int]], skip: bool) -> list[str]:
    """Decode rows by the engine, and compare it with the reference where that defines the text."""
    ids = np.array([token_id for row in rows for token_id in row], np.int64)
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    decoded = ENGINE.decode(vocabulary, ids, offsets, skip)
    assert not decoded.errors
    ends = decoded.offsets.tolist()
    texts = [decoded.data[ends[i] : ends[i + 1]].tobytes() for i in range(len(rows))]
    if not isinstance(vocabulary.model, Upstream):
        assert texts == [reference.decode(vocabulary, row, skip) for row in rows]
    return [text.decode(errors="replace") for text in texts]


def make_rows(size: int, seed: int) -> list[list[int]]:
    chance = random.Random(seed)
    rows = [[chance.randrange(size) for _ in range(chance.randrange(9))] for _ in range(60)]
    return [[], [0], *rows, [size - 1, size - 1]]


@pytest.mark.parametrize("byte_level", [True, False])
@pytest.mark.parametrize("decoder", DECODERS)
def test_ids_are_decoded_as_by_the_library(decoder: dict[str, Any] | None, byte_level: bool):
    content = make_document(decoder, byte_level=byte_level)
    library = Tokenizer.from_str(json.dumps(content))
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    rows = make_rows(len(vocabulary), 1)
    for skip in (False, True):
        wanted = [library.decode(row, skip_special_tokens=skip) for row in rows]
        assert decode(vocabulary, rows, skip) == wanted


@pytest.mark.parametrize("byte_level", [True, False])
@pytest.mark.parametrize("decoder", DECODERS)
def test_the_inverse_is_what_was_encoded(decoder: dict[str, Any] | None, byte_level: bool):
    content = make_document(decoder, byte_level=byte_level)
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)}, decoder="inverse")
    assert (vocabulary.kind, vocabulary.decoder) == ("bpe", "inverse")
    for text in ("", "abab b<s>aab", "é ab ab中 x"):
        ids = reference.encode(vocabulary, text).ids
        assert decode(vocabulary, [ids], False) == [text]


def test_a_file_without_a_decoder_has_blanks_between_its_tokens():
    vocabulary = read_vocabulary({"file": encoded(document({"no": 0, "w": 1, "ill": 2}, []))})
    assert decode(vocabulary, [[0, 1, 2], []], False) == ["no w ill", ""]
    refused = ENGINE.decode(vocabulary, np.array([0, 9, 1]), np.array([0, 2, 3]), False)
    assert refused.errors[0].where == "ids[1]"
    assert refused.data.tobytes() == b"w"


def test_the_decoder_is_a_part_of_a_vocabulary_and_outlives_its_files():
    content = make_document(None, byte_level=True)
    blanks = read_vocabulary({"tokenizer.json": encoded(content)})
    inverse = read_vocabulary({"tokenizer.json": encoded(content)}, decoder="inverse")
    assert blanks.digest != inverse.digest
    for vocabulary in (blanks, inverse):
        assert read_canonical(to_bytes(vocabulary)) == vocabulary
        written = write_vocabulary(vocabulary, "tokenizer.json")
        assert read_vocabulary(written) == vocabulary
    stored = {"a": to_bytes(blanks)}
    assert read_vocabulary(stored, format="canonical", decoder="inverse") == inverse


def test_what_cannot_be_decoded_inversely_is_refused():
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
    content = document({}, []) | {"model": unigram}
    for decoder, message in (("inverse", "Unigram"), ("blanks", "file, inverse")):
        with pytest.raises(VocabularyError, match=message) as caught:
            read_vocabulary({"tokenizer.json": encoded(content)}, decoder=decoder)
        assert caught.value.findings[0].where == "decoder"


def test_built_in_vocabularies_decode_to_what_was_encoded():
    text = "ACGTTGCAACGTAGCATTGCA"
    for name in ("dnabert2", "gena_lm_t2t_32k"):
        vocabulary = load(name)
        ids = reference.encode(vocabulary, text).ids
        assert decode(vocabulary, [ids[1:-1]], False) == [text]
