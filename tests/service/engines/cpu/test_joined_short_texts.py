"""Texts that are encoded together give the ids that each gives alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.engines.cpu.bpe.fastokens_encoder import FastokensEncoder
from service.engines.cpu.bpe.joined_short_texts import MAX_CHARACTERS, MAX_GROUP, RULES, ShortTexts
from tests.support.compiled import extension
from tests.support.data_files import ROOT
from vocabularies import builtin
from vocabularies.batch.batch import Batch
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary

PARTS = [
    " ",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\v",
    "\f",
    "\x1c",
    "\x85",
    "\xa0",
    "\xad",
    "\u180e",
    "a",
    " the",
    "The",
    "THE",
    "É",
    "ª",
    "1",
    "4567",
    "²",
    "!",
    "(",
    "'",
    "'s",
    "'LL",
    "/",
    "...",
    "<|endoftext|>",
    "\u017f",
    "\u0301",
    "漢",
    "\U0001f642",
]
TEXTS = st.lists(st.lists(st.sampled_from(PARTS) | st.characters(max_codepoint=255)).map("".join))


@pytest.fixture(scope="module")
def built():
    return extension(ROOT / "service/engines/cpu/bpe/joined_short_texts.cpp", "_joined_short_texts")


@cache
def encoder_of(rule: str) -> FastokensEncoder:
    """GPT-2's, or cl100k's tokens cut by a rule."""
    vocabulary = builtin.load("gpt2" if rule == "gpt2" else "cl100k_base")
    vocabulary = replace(vocabulary, pretokenizer=rule)
    return FastokensEncoder(vocabulary, token_table(vocabulary))


@cache
def joining(rule: str, built: ModuleType) -> ShortTexts | None:
    encoder = encoder_of(rule)
    return ShortTexts.of(encoder.vocabulary, "llama3" if encoder.tails else rule, built)


@pytest.mark.parametrize("rule", sorted(RULES | {"cl100k"}))
@given(texts=TEXTS, plain=st.booleans())
@example(texts=["a ", "b", "c \n ", "'s", "", "d", " e", "<|endoftext|>f", "g\v", "h"], plain=False)
def test_texts_have_the_ids_that_each_has_alone(built, rule, texts, plain):
    encoder = encoder_of(rule)
    encoder.short_texts = None
    alone = encoder.content(Batch(texts), plain)
    encoder.short_texts = joining(rule, built)
    assert encoder.short_texts is not None
    together = encoder.content(Batch(texts), plain)
    assert together.ids.tolist() == alone.ids.tolist()
    assert together.offsets.tolist() == alone.offsets.tolist()


def groups_of(texts: list[str], longest: int, most: int) -> list[list[str]]:
    """What `join` does, in Python."""
    groups: list[list[str]] = []
    may_go_on = False
    for text in texts:
        is_short = len(text) <= longest and text.isascii() | (max(text, default="") <= "\xff")
        is_short = is_short and "\v" not in text
        fits = may_go_on and len("\v".join([*groups[-1], text])) <= most
        if is_short and fits and text and not text[0].isspace():
            groups[-1].append(text)
        else:
            groups.append([text])
            may_go_on = is_short
    return groups


@given(texts=TEXTS, longest=st.integers(0, 9), most=st.integers(0, 30))
def test_short_texts_are_joined_and_others_stay_alone(built, texts, longest, most):
    counts = np.zeros(len(texts), np.int64)
    joined = built.join(texts, b"\v", longest, most, counts)
    expected = groups_of(texts, longest, most)
    assert joined == ["\v".join(group) for group in expected]
    assert counts[: len(joined)].tolist() == [*map(len, expected)]
    assert [text.isascii() for text in joined] == [all(map(str.isascii, g)) for g in expected]


def test_the_limits_are_reached_and_not_passed(built):
    counts = np.zeros(3, np.int64)
    text = "a" * MAX_CHARACTERS
    assert len(built.join([text, text, "a"], b"\v", MAX_CHARACTERS, MAX_GROUP, counts)) == 1
    assert len(built.join([text + "a", text, "a"], b"\v", MAX_CHARACTERS, MAX_GROUP, counts)) == 2
    assert (
        len(built.join([text, text, "a"], b"\v", MAX_CHARACTERS, 2 * MAX_CHARACTERS + 1, counts))
        == 2
    )


@given(rows=st.lists(st.lists(st.lists(st.integers(0, 8), max_size=4), min_size=1, max_size=4)))
def test_ids_are_split_where_texts_were_joined(built, rows):
    joined = [[each for row in group for each in [*row, 9]][:-1] for group in rows]
    flat = [row for group in rows for row in group]
    ids, offsets = split(built, joined, [*map(len, rows)])
    assert [ids[b:e] for b, e in pairwise(offsets)] == flat


def split(built, joined, groups, num_ids=None):
    ids = np.array([each for group in joined for each in group], np.int32)
    offsets = np.cumsum([0, *map(len, joined)]).astype(np.int64)
    counts = np.zeros(sum(groups), np.int64)
    counts[: len(groups)] = groups
    num_ids = len(ids) - (len(counts) - len(groups)) if num_ids is None else num_ids
    out, out_offsets = np.empty(max(0, num_ids), np.int32), np.empty(len(counts) + 1, np.int64)
    built.split(ids.tobytes(), offsets.tobytes(), counts, 9, out, out_offsets)
    return out.tolist(), out_offsets.tolist()


@pytest.mark.parametrize(
    ("joined", "groups", "num_ids"),
    [
        ([[1, 2]], [2], None),
        ([[1, 9, 2, 9, 3]], [2], None),
        ([[1] * 40, []], [1, 5], None),
        ([[1, 9, 2]], [2], 3),
        ([[1, 9, 2]], [2], 1),
        ([[1]], [1, 1], None),
    ],
)
def test_ids_of_other_texts_are_refused(built, joined, groups, num_ids):
    with pytest.raises(ValueError, match="not those of joined texts"):
        split(built, joined, groups, num_ids)


def test_wrong_arguments_are_refused(built):
    counts, ids = np.zeros(1, np.int64), np.zeros(1, np.int32)
    for call in (
        lambda: built.join(("a",), b"\v", 9, 9, counts),
        lambda: built.join([b"a"], b"\v", 9, 9, counts),
        lambda: built.join(["a"], b"\v\v", 9, 9, counts),
        lambda: built.join(["a"], b"\v", 9, 9),
        lambda: built.split(ids, counts, counts, "9", ids, counts),
    ):
        with pytest.raises(TypeError):
            call()
    for call in (
        lambda: built.join(["a", "b"], b"\v", 9, 9, counts),
        lambda: built.join(["a"], b"\xff", 9, 9, counts),
        lambda: built.join(["a"], b"\v", 9, 9, bytes(8)),
        lambda: built.split(b"", b"", counts, 9, ids, counts),
        lambda: built.split(ids, np.array([0, -1]), np.array([1]), 9, ids, np.zeros(2, np.int64)),
        lambda: built.split(ids, np.array([0, 1]), np.array([-1]), 9, ids, np.zeros(2, np.int64)),
        lambda: built.split(ids, np.array([0, 1]), np.array([2**62]), 9, ids, counts),
    ):
        with pytest.raises((ValueError, BufferError)):
            call()


def special(content: str = "<s>", **how: bool) -> Vocabulary:
    base = builtin.load("gpt2")
    token = SpecialToken(content, len(base), **how)
    tokens = (*base.tokens, content.encode())
    return replace(base, tokens=tokens, special_tokens=(*base.special_tokens, token))


@pytest.mark.parametrize(
    ("vocabulary", "rule"),
    [
        (builtin.load("gpt2"), "cl100k"),
        (builtin.load("gpt2"), "another"),
        (special(lstrip=True), "gpt2"),
        (special(rstrip=True), "gpt2"),
        (special(single_word=True), "gpt2"),
        (special("a\vb"), "gpt2"),
        (replace(builtin.load("gpt2"), tokens=(*builtin.load("gpt2").tokens, b" \v")), "gpt2"),
        (Vocabulary((b"a",), Bpe(())), "gpt2"),
        (replace(builtin.load("gpt2"), model=Bpe((), ignore_merges=True)), "gpt2"),
    ],
)
def test_texts_of_other_vocabularies_stay_apart(built, vocabulary, rule):
    assert ShortTexts.of(vocabulary, rule, built) is None
    assert ShortTexts.of(builtin.load("gpt2"), "gpt2", built) is not None


def test_without_the_extension_texts_stay_apart():
    assert ShortTexts.of(builtin.load("gpt2"), "gpt2", None) is None
