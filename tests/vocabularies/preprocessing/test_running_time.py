"""Regular expressions that are known, the fields with others, and other sources of slowness."""

from __future__ import annotations

import pytest

from tests.support.inputs.tokenizer_documents import document, encoded
from vocabularies import builtin, formats
from vocabularies.preprocessing.published_patterns import DEEPSEEK_V3, LLAMA3, O200K, QWEN2, TEKKEN
from vocabularies.preprocessing.running_time import (
    MAX_LITERAL,
    MAX_STEPS,
    MAX_WORD,
    UnknownPattern,
    is_known,
)

KNOWN = (
    *(LLAMA3, O200K, QWEN2, TEKKEN, *DEEPSEEK_V3),
    *(r"\d{1,3}|\s+", r"[^\S\n]+", "a?", " ?a+", "N{10,}", "R|Y|\\s", "a++", "a+?", r"\\+", r"\[+"),
    *(r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\p{Lu}{2}", "[[:alpha:]]+", r"\x{41}+", "'s|'t| ?\\p{L}+"),
)
UNKNOWN = (
    *(r"(?:a{1000}){1000}", r"\s+$", "a+b", "a*b", "a{1000}", "(a)", "(?=a)", "a?b?c", "a+|b+c"),
    *(r"\g<0>", r"(a)\1", "[ab*", "a]", "", "a|", "a+*+", "{", "a{2}{3}", "^a+$", "x" * 1_001),
)


@pytest.mark.parametrize("pattern", KNOWN)
def test_known(pattern):
    assert is_known(pattern)


@pytest.mark.parametrize("pattern", UNKNOWN, ids=lambda pattern: pattern[:20] or "empty")
def test_unknown(pattern):
    assert not is_known(pattern)


def test_each_unknown_pattern_of_a_file_is_found_with_its_place():
    def split(pattern):
        return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}

    parts = [split({"Regex": "a+b"}), split({"Regex": r"\s+"}), split({"String": "(a+)+b"})]
    replace = {"type": "Replace", "pattern": {"Regex": "(c)"}, "content": ""}
    long = replace | {"pattern": {"String": "." * (MAX_LITERAL + 1)}}
    content = document(
        {"a": 0},
        [],
        normalizer=replace,
        pre_tokenizer={"type": "Sequence", "pretokenizers": parts},
        decoder={"type": "Sequence", "decoders": [{"type": "Fuse"}, long]},
    )
    vocabulary = formats.read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.costs.patterns == (
        UnknownPattern("normalizer.pattern.Regex", "(c)"),
        UnknownPattern("pre_tokenizer.pretokenizers[0].pattern.Regex", "a+b"),
        UnknownPattern("decoder.decoders[1].pattern.String", "\\." * (MAX_LITERAL + 1)),
    )


def test_the_normalizers_of_a_bpe_are_looked_at_too():
    steps = [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": "-"}
        for pattern in ("N{10,}", "a+b")
    ]
    content = document({"a": 0}, [], normalizer={"type": "Sequence", "normalizers": steps})
    vocabulary = formats.read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.kind == "bpe"
    assert vocabulary.costs.patterns == (UnknownPattern("normalizers[1]", "a+b"),)


def read(**fields):
    return formats.read_vocabulary({"tokenizer.json": encoded(document({"a": 0}, [], **fields))})


BLANKS = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}
AS = {"type": "Replace", "pattern": {"String": "a"}, "content": "a"}


@pytest.mark.parametrize("num", [2, MAX_STEPS - 1, MAX_STEPS])
def test_many_known_steps_take_long_together(num):
    inner = {"type": "Sequence", "pretokenizers": [BLANKS, BLANKS]}
    steps = {"type": "Sequence", "pretokenizers": [inner] + [BLANKS] * (num - 3)}
    vocabulary = read(pre_tokenizer=steps)
    assert vocabulary.kind == "upstream"
    assert vocabulary.may_take_long == (num >= MAX_STEPS)
    assert not vocabulary.costs.patterns
    vocabulary = read(normalizer={"type": "Sequence", "normalizers": [AS] * (num + 1)})
    assert (vocabulary.kind, vocabulary.may_take_long) == ("bpe", num >= MAX_STEPS)


@pytest.mark.parametrize("length", [MAX_WORD, MAX_WORD + 1])
def test_long_words_of_wordpiece_and_long_tokens_of_unigram_take_long(length):
    content = document({"a": 0}, [], type="WordPiece", unk_token="a")
    content["model"] |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": length}
    vocabulary = formats.read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.may_take_long == (length > MAX_WORD)
    content = document({}, [], type="Unigram", unk_id=0)
    content["model"]["vocab"] = [["<unk>", 0.0], ["a" * length, -1.0]]
    vocabulary = formats.read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.may_take_long == (length > MAX_WORD)


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin.BUILTINS)
def test_built_in_vocabularies_have_known_patterns_only(name):
    assert not builtin.load(name).may_take_long
