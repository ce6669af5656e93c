"""The reference against the `tokenizers` library on random small vocabularies: ids and offsets."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from vocabularies.batch.batch import EncodeOptions, RowRefused
from vocabularies.model.byte_alphabet import to_alphabet
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.preprocessing.pretokenizers import find_pretokenizer
from vocabularies.reference.bpe import BpeRules, Symbol, merge, merge_long
from vocabularies.reference.tokenizer import encode

LETTERS = ["a", "b", "é", "🙂", " ", "A"]
UNKNOWN = "[UNK]"
Pairs = list[tuple[bytes, bytes]]
Spans = list[tuple[int, int]]


@st.composite
def trained(draw: st.DrawFn, byte_level: bool) -> tuple[list[bytes], Pairs]:
    """Draw first symbols, perhaps not all that texts hold, and random merges of them."""
    letters = draw(st.lists(st.sampled_from(LETTERS), min_size=2, max_size=4, unique=True))
    encoded = [letter.encode() for letter in letters]
    if byte_level:
        encoded = sorted({bytes([byte]) for letter in encoded for byte in letter})
    tokens, merges = list(encoded), []
    for _ in range(draw(st.integers(0, 60))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if len(left + right) <= 12 and (left, right) not in merges:
            merges.append((left, right))
            if left + right not in tokens:
                tokens.append(left + right)
    return tokens, merges


def hugging_face(
    vocabulary: Vocabulary, fuse_unknown: bool, normalizer: dict[str, Any] | None = None
) -> Tokenizer:
    """Write a tokenizer.json of the same BPE, without `formats`."""
    model = vocabulary.model
    assert isinstance(model, Bpe)

    def written(token_id: int) -> str:
        token = vocabulary.tokens[token_id]
        assert token is not None
        special = any(t.id == token_id for t in vocabulary.special_tokens)
        unknown = token_id == model.unknown_id
        byte_level = model.byte_level and not special and not unknown
        return to_alphabet(token) if byte_level else token.decode()

    whole = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    pre_tokenizer = find_pretokenizer(vocabulary.pretokenizer).hf_json
    if model.byte_level and vocabulary.pretokenizer == "none":
        pre_tokenizer = whole | {"use_regex": False}
    described = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "unk_token": None if model.unknown_id is None else UNKNOWN,
            "fuse_unk": fuse_unknown,
            "ignore_merges": model.ignore_merges,
            "vocab": {written(i): i for i in range(len(vocabulary))},
            "merges": [[written(left), written(right)] for left, right in model.merges],
        },
    }
    tokenizer = Tokenizer.from_str(json.dumps(described))
    for token in vocabulary.special_tokens:
        flags = {name: getattr(token, name) for name in ("normalized", "lstrip", "rstrip")}
        added = AddedToken(token.content, single_word=token.single_word, **flags)
        if token.special:
            tokenizer.add_special_tokens([added])
        else:
            tokenizer.add_tokens([added])
        assert tokenizer.token_to_id(token.content) == token.id
    return tokenizer


def in_characters(text: str, spans: Spans) -> Spans:
    """Convert byte spans to those of `tokenizers`: the whole characters that hold the bytes."""
    character = [i for i, c in enumerate(text) for _ in c.encode()]
    return [(character[a], character[b - 1] + 1) if b > a else (a, b) for a, b in spans]


@settings(max_examples=400)
@given(
    data=st.data(),
    byte_level=st.booleans(),
    unknown=st.sampled_from(["dropped", "apart", "fused"]),
    ignore_merges=st.booleans(),
    split=st.sampled_from(["none", "whitespace", "whitespace_split", "gpt2"]),
)
def test_random_vocabularies_give_the_ids_and_offsets_of_tokenizers(
    data, byte_level, unknown, ignore_merges, split
):
    split = "none" if (split == "gpt2") != byte_level else split
    tokens, pairs = data.draw(trained(byte_level))
    unreachable = b"ab" * 4
    tokens += [unreachable] if unreachable not in tokens else []
    model = Bpe(
        merges=tuple((tokens.index(left), tokens.index(right)) for left, right in pairs),
        byte_level=byte_level,
        ignore_merges=ignore_merges,
        unknown_id=None if unknown == "dropped" else len(tokens),
        fuse_unknown=unknown == "fused",
    )
    vocabulary = Vocabulary((*tokens, UNKNOWN.encode()), model, pretokenizer=split)
    tokenizer = hugging_face(vocabulary, unknown == "fused")
    for text in data.draw(st.lists(st.text(LETTERS, max_size=90), min_size=1, max_size=5)):
        row, theirs = encode(vocabulary, text), tokenizer.encode(text)
        assert row.ids == theirs.ids
        if unknown != "dropped":  # Behind a dropped symbol the offsets of tokenizers are shifted.
            assert in_characters(text, row.spans) == theirs.offsets


@st.composite
def symbols_and_rules(draw: st.DrawFn) -> tuple[list[Symbol], BpeRules]:
    tokens, pairs = draw(trained(byte_level=False))
    merges = {
        (tokens.index(left), tokens.index(right)): (rank, tokens.index(left + right))
        for rank, (left, right) in enumerate(pairs)
    }
    number = len([token for token in tokens if len(token.decode()) == 1])
    ids = draw(st.lists(st.integers(0, number - 1), max_size=200))
    return [Symbol(token_id, i, i + 1) for i, token_id in enumerate(ids)], BpeRules(merges, {})


@settings(max_examples=300)
@given(case=symbols_and_rules())
def test_merge_long_equals_merge(case):
    symbols, rules = case
    assert merge_long(symbols, rules) == merge(symbols, rules)


CONTENTS = ["<a>", "<a", "a>", "ab", "b a", "  ", "<ab>", "é<", "_b", "<A>", "A", " b"]
NORMALIZERS: dict[str, tuple[Normalizer, dict[str, Any]]] = {
    "lowercase": (Normalizer("lowercase"), {"type": "Lowercase"}),
    "strip": (
        Normalizer("strip"),
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ),
    "nfc": (Normalizer("nfc"), {"type": "NFC"}),
    "replace": (
        Normalizer("replace", "ab", "<"),
        {"type": "Replace", "pattern": {"String": "ab"}, "content": "<"},
    ),
    "replace_regex": (
        Normalizer("replace_regex", "a{2,}", "🙂é"),
        {"type": "Replace", "pattern": {"Regex": "a{2,}"}, "content": "🙂é"},
    ),
}


@st.composite
def special_tokens(draw: st.DrawFn, alphabet: list[bytes]) -> tuple[SpecialToken, ...]:
    """Draw special tokens; one that is a symbol has that symbol's id, as in a tokenizer.json."""
    # Of "<a>" and "<A>", both normalized to "<a>", `tokenizers` finds now one and now the other.
    contents = draw(
        st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=6, unique_by=str.lower)
    )
    flags = st.fixed_dictionaries(
        {
            name: st.booleans()
            for name in ("special", "normalized", "lstrip", "rstrip", "single_word")
        }
    )
    drawn = [draw(flags) for _ in contents]
    for content, flag in zip(contents, drawn, strict=True):
        if content.isspace():  # With nothing left of it `tokenizers` panics.
            flag["normalized"] = flag["lstrip"] = False
    added = [content for content in contents if content.encode() not in alphabet]
    symbols = [*alphabet, *map(str.encode, added)]
    return tuple(
        SpecialToken(content, symbols.index(content.encode()), **flag)
        for content, flag in zip(contents, drawn, strict=True)
    )


@settings(max_examples=500)
@given(
    data=st.data(),
    byte_level=st.booleans(),
    steps=st.lists(st.sampled_from(sorted(NORMALIZERS)), max_size=3),
)
def test_special_tokens_and_normalizers_give_the_ids_and_offsets_of_tokenizers(
    data, byte_level, steps
):
    signs = "ab<>é_ A🙂\x85e\u0301"
    alphabet = [bytes([b]) for b in range(256)] if byte_level else [c.encode() for c in signs]
    special = data.draw(special_tokens(alphabet))
    contents = [token.content.encode() for token in special]
    tokens = (*alphabet, *(content for content in contents if content not in alphabet))
    vocabulary = Vocabulary(
        (*tokens, UNKNOWN.encode()),
        Bpe(merges=(), byte_level=byte_level, unknown_id=len(tokens)),
        special_tokens=special,
        normalizers=tuple(NORMALIZERS[name][0] for name in steps),
    )
    normalizer = {"type": "Sequence", "normalizers": [NORMALIZERS[name][1] for name in steps]}
    tokenizer = hugging_face(vocabulary, False, normalizer if steps else None)
    pieces = st.sampled_from([*CONTENTS, *signs, "aa", "   "])
    for text in data.draw(st.lists(st.lists(pieces, max_size=20).map("".join), max_size=6)):
        for mode, plain in (("match", False), ("plain", True)):
            tokenizer.encode_special_tokens = plain
            row = encode(vocabulary, text, EncodeOptions(special=mode))
            theirs = tokenizer.encode(text)
            assert row.ids == theirs.ids, (mode, text)
            assert in_characters(text, row.spans) == theirs.offsets, (mode, text)
        _check_refuse(vocabulary, text)


def _check_refuse(vocabulary: Vocabulary, text: str) -> None:
    """Check that a row is refused where "match" gives the id of a token with special=True."""
    matched = encode(vocabulary, text)
    special = {token.id for token in vocabulary.special_tokens if token.special}
    try:
        row = encode(vocabulary, text, EncodeOptions(special="refuse"))
    except RowRefused as refused:
        assert refused.error.code == "special_token_refused"
        assert special & set(matched.ids)
    else:
        assert row == matched
