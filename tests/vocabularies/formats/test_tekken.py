"""Mistral's tekken.json: its ids equal tiktoken's, and damaged files are refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import tiktoken

from service.engines.cpu.engine import CpuEngine
from tests.support.inputs.nasty_texts import TEXTS
from vocabularies.batch.batch import Batch
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.preprocessing.pretokenizers import find_pretokenizer
from vocabularies.reference import tokenizer

TOKENS = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" the", b"lo", b"llo", b"unused"]
PATTERN = find_pretokenizer("tekken").tiktoken_pattern
CONTROL = ["<unk>", "<s>", "</s>", "[INST]"]


def tekken(**fields: Any) -> dict[str, Any]:
    """Make a file of 6 control tokens and all tokens but the last."""
    words = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(TOKENS)
    ]
    num_control = fields.get("default_num_special_tokens", 6)
    config = {
        "pattern": PATTERN,
        "num_vocab_tokens": len(words),
        "default_vocab_size": len(words) - 1 + num_control,
        "default_num_special_tokens": num_control,
        "version": "v13",
    }
    special = [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(CONTROL)]
    whole = {"config": config, "vocab": words, "special_tokens": special}
    config |= {name: value for name, value in fields.items() if name in config}
    return whole | {name: value for name, value in fields.items() if name not in config}


def read(document: dict[str, Any], name: str = "upload"):
    return read_vocabulary({name: json.dumps(document).encode()})


def test_ids_are_tiktokens_behind_the_control_tokens_which_no_text_gives():
    vocabulary = read(tekken())
    assert vocabulary == read(tekken(), "tekken.json")
    assert (vocabulary.prefix, vocabulary.suffix, len(vocabulary)) == ((1,), (), 267)
    assert vocabulary.tokens[:6] == (*map(str.encode, CONTROL), b"<SPECIAL_4>", b"<SPECIAL_5>")
    assert vocabulary.special_ids == frozenset(range(6))
    ranks = {token: rank for rank, token in enumerate(TOKENS[:-1])}
    library = tiktoken.Encoding(
        "t", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={}, explicit_n_vocab=261
    )
    texts = [*TEXTS, "hello the other", "<s>[INST] the [/INST]</s> unused"]
    got = CpuEngine().encode(vocabulary, Batch(texts))
    for row, text in enumerate(texts):
        expected = [1, *(6 + rank for rank in library.encode_ordinary(text))]
        assert got.row(row).tolist() == expected
        assert tokenizer.encode(vocabulary, text).ids == expected


def test_files_of_before_version_8_do_not_name_their_control_tokens():
    vocabulary = read(tekken(special_tokens=None, default_num_special_tokens=22))
    assert vocabulary.tokens[1:4] == (b"<s>", b"</s>", b"[INST]")
    assert vocabulary.tokens[19:22] == (b"[TOOL_CONTENT]", b"<SPECIAL_20>", b"<SPECIAL_21>")
    assert (vocabulary.roles["pad"], vocabulary.prefix) == (11, (1,))


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"pattern": "a(b"}, ["config.pattern"]),
        ({"pattern": None}, ["config.pattern"]),
        ({"default_vocab_size": "big"}, ["config.default_vocab_size"]),
        ({"default_num_special_tokens": -1}, ["config.default_num_special_tokens"]),
        ({"default_num_special_tokens": 3}, ["special_tokens"]),
        ({"default_vocab_size": 9999}, ["vocab"]),
        ({"default_vocab_size": 6}, ["vocab"]),
        ({"default_vocab_size": 200}, ["ranks"]),
        ({"vocab": {}}, ["vocab"]),
        ({"vocab": [1, *tekken()["vocab"][1:]]}, ["vocab[0]"]),
        ({"vocab": tekken()["vocab"][::-1]}, [f"vocab[{i}]" for i in range(100)]),
        ({"vocab": [*tekken()["vocab"][:260], {"rank": 260, "token_bytes": "="}]}, ["vocab[260]"]),
        ({"vocab": [*tekken()["vocab"][:260], {"rank": 260, "token_bytes": "é"}]}, ["vocab[260]"]),
        (
            {"vocab": [*tekken()["vocab"][:260], {"rank": 260, "token_bytes": "dGg="}]},
            ["vocab[260]"],
        ),
        ({"special_tokens": "x"}, ["special_tokens[0]"]),
        ({"special_tokens": [{"rank": 1, "token_str": "x"}]}, ["special_tokens[0]"]),
        ({"special_tokens": [{"rank": 0, "token_str": "x"}] * 2}, ["special_tokens[1]"]),
    ],
)
def test_a_damaged_file_is_refused_with_its_places(fields, where):
    with pytest.raises(VocabularyError) as raised:
        read(tekken(**fields))
    assert [finding.where for finding in raised.value.findings] == where


def test_another_json_is_no_tekken_and_none_is_written():
    with pytest.raises(VocabularyError, match="default_num_special_tokens"):
        read_vocabulary({"x": b'{"config": {}}'}, format="tekken.json")
    with pytest.raises(VocabularyError, match="cannot be written"):
        write_vocabulary(read(tekken()), "tekken.json")
