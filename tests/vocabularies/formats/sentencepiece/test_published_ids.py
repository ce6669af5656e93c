"""Ids of SentencePiece models against those of sentencepiece and transformers.

`make_models.py` made the models, and wrote their ids to `expected.json`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.formats.folders import find_tokenizer_files
from vocabularies.formats.sentencepiece.charsmap import find_replacement
from vocabularies.formats.sentencepiece.model_file import parse_model
from vocabularies.model.types import Upstream
from vocabularies.model.vocabulary import Vocabulary

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
TEXTS, OWN, CLASSES = EXPECTED["texts"], EXPECTED["own"], EXPECTED["classes"]
# The library applies the rules of a model to a letter and its combining marks as to one.
WITHOUT_MARKS = st.characters(codec="utf-8", exclude_categories=("Mn", "Mc", "Me", "Lm"))
SNIPPETS = st.sampled_from([text for text in TEXTS if text])


def content(name: str) -> bytes:
    return (HERE / "models" / f"{name}.model").read_bytes()


@cache
def read(name: str) -> Vocabulary:
    return read_vocabulary({"tokenizer.model": content(name)})


def write_folder(folder: Path, case: dict[str, Any]) -> Path:
    (folder / case["file"]).write_bytes(content(case["model"]))
    for name, values in case["files"].items():
        (folder / name).write_text(json.dumps(values))
    return folder


def library(vocabulary: Vocabulary) -> Tokenizer:
    assert isinstance(vocabulary.model, Upstream)
    assert not vocabulary.may_take_long, vocabulary.costs
    return Tokenizer.from_str(vocabulary.model.tokenizer_json)


@pytest.mark.parametrize("name", OWN)
def test_a_model_alone_gives_the_ids_of_sentencepiece(name):
    tokenizer = library(read(name))
    for text, ids, decoded in zip(TEXTS, OWN[name]["ids"], OWN[name]["decoded"], strict=True):
        assert (text, tokenizer.encode(text).ids) == (text, ids)
        assert (text, tokenizer.decode(ids, skip_special_tokens=False)) == (text, decoded)


@pytest.mark.parametrize("name", CLASSES)
def test_a_model_with_its_class_gives_the_ids_of_transformers(name, tmp_path):
    case = CLASSES[name]
    paths = find_tokenizer_files(write_folder(tmp_path, case))
    assert [path.name for path in paths] == [case["file"], *case["files"]]
    tokenizer = library(read_vocabulary({path.name: path.read_bytes() for path in paths}))
    for i, text in enumerate(TEXTS):
        encoding = tokenizer.encode(text)
        assert (text, encoding.ids) == (text, case["ids"][i])
        assert (text, [*map(list, encoding.offsets)]) == (text, case["offsets"][i])
    assert json.loads(tokenizer.to_str())["decoder"] == case["decoder"]


@pytest.mark.parametrize("name", OWN)
def test_random_texts_give_the_ids_of_sentencepiece(name):
    sentencepiece = pytest.importorskip("sentencepiece")
    own = sentencepiece.SentencePieceProcessor(model_proto=content(name))
    tokenizer = library(read(name))

    @given(st.lists(SNIPPETS | st.text(WITHOUT_MARKS, max_size=5), max_size=5).map("".join))
    def compare(text: str) -> None:
        assert tokenizer.encode(text).ids == own.encode(text)

    compare()


def test_rules_for_characters_are_looked_up():
    charsmap = parse_model(content("unigram_rules")).charsmap
    found = {c: find_replacement(charsmap, c.encode()) for c in ("A", "½", "\n", "a", "Ö", "")}
    assert found == {"A": b"a", "½": b"1/2", "\n": b" ", "a": None, "Ö": None, "": None}
    assert find_replacement(charsmap, b"A and more") == b"a"
    assert find_replacement(b"", b"A") is find_replacement(b"\4\0\0\0", b"A") is None


def test_tokens_have_the_names_and_roles_of_the_model():
    vocabulary = read("bpe_symbols")
    assert [vocabulary.file_string(i) for i in range(5)] == [
        "<unk>",
        "<s>",
        "</s>",
        "<ctl>",
        "<sep>",
    ]
    assert vocabulary.roles == {"unk": 0, "bos": 1, "eos": 2}
    assert vocabulary.special_ids == {0, 1, 2, 3}
    assert read("bpe_gemma").roles == {"pad": 0, "eos": 1, "bos": 2, "unk": 3}


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("word", "trainer_spec.model_type"),
        ("suffix", "trainer_spec.treat_whitespace_as_suffix"),
    ],
)
def test_a_kind_that_is_not_read_is_named(name, where):
    assert name in EXPECTED["refused"]
    with pytest.raises(VocabularyError) as caught:
        read(name)
    assert [finding.where for finding in caught.value.findings] == [where]
