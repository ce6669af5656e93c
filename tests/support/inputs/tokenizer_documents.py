"""Small tokenizer.json documents for tests, and random ones."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st

from vocabularies.model.byte_alphabet import BYTE_TO_CHARACTER, to_alphabet

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def added(content: str, token_id: int, **flags: bool) -> dict[str, Any]:
    values = dict.fromkeys(FLAGS, False) | {"special": True} | flags
    return {"id": token_id, "content": content, **values}


def document(
    vocab: dict[str, int], merges: list[Any], *, byte_level: bool = False, **fields: Any
) -> dict[str, Any]:
    """Make a tokenizer.json; `fields` of the model go there, all others to the top."""
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": merges,
    }
    top = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {**BYTE_LEVEL, "use_regex": True} if byte_level else None,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    for name, value in fields.items():
        (model if name in model else top)[name] = value
    return top


def encoded(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


ABC = document({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, ["a b", "ab c"])
BYTES = {character: byte for byte, character in enumerate(BYTE_TO_CHARACTER)}


@st.composite
def merge_lists(draw: st.DrawFn, letters: str) -> list[tuple[str, str]]:
    """Draw 4 to 60 merges over the letters, each of existing tokens, in any order."""
    tokens = [*letters]
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(4, 60))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if pair not in merges and len("".join(pair)) <= 24:
            merges.append(pair)
            if "".join(pair) not in tokens:
                tokens.append("".join(pair))
    return draw(st.permutations(merges))


@st.composite
def bpe_documents(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """Draw a tokenizer.json and the letters for its texts."""
    byte_level = draw(st.booleans())
    letters = draw(st.sampled_from(["ab", "abc", "aé中x", "a b", "AC GT"]))
    symbols = to_alphabet(letters.encode()) if byte_level else letters
    symbols = "".join(dict.fromkeys(symbols))
    known = symbols if draw(st.booleans()) else symbols[1:]
    merges = draw(merge_lists(known))
    strings = ["[UNK]", "<s>", *known, *("".join(pair) for pair in merges)]
    ids = draw(st.permutations(range(len(dict.fromkeys(strings)))))
    vocab = dict(zip(dict.fromkeys(strings), ids, strict=True))
    unknown = draw(st.sampled_from([None, "[UNK]"]))
    splitter = draw(st.sampled_from([None, "WhitespaceSplit"]))
    steps = [{"type": splitter}] if splitter else []
    steps += [{**BYTE_LEVEL, "use_regex": False}] if byte_level else []
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
        "pair": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [vocab["<s>"]], "tokens": ["<s>"]}},
    }
    for piece in (*template["single"], *template["pair"]):
        next(iter(piece.values())).setdefault("type_id", 0)
    return document(
        vocab,
        [list(pair) for pair in merges],
        added_tokens=[
            added("<s>", vocab["<s>"], lstrip=draw(st.booleans()), rstrip=draw(st.booleans())),
            added("ab", vocab.get("ab", len(vocab)), special=False, single_word=True)
            if draw(st.booleans())
            else added("[UNK]", vocab["[UNK]"]),
        ],
        pre_tokenizer={"type": "Sequence", "pretokenizers": steps} if steps else None,
        post_processor=template if draw(st.booleans()) else None,
        unk_token=unknown,
        fuse_unk=draw(st.booleans()),
        ignore_merges=draw(st.booleans()),
    ), letters


@st.composite
def rank_lists(draw: st.DrawFn) -> list[bytes]:
    """Draw rank lists: all 256 bytes and some longer tokens, in order of rank.

    Longer tokens are joined from any tokens, or added whole (no merge may reach them), and
    their ranks are in any order, so that a token may stand before its own parts.
    """
    letters = draw(st.sampled_from([b"ab", b"abc", b"ab c", "é中".encode()]))
    made = [bytes([letter]) for letter in letters]
    for _ in range(draw(st.integers(4, 60))):
        whole = draw(st.integers(0, 9)) == 0
        parts = st.sampled_from(made[: len(letters)] if whole else made)
        token = b"".join(draw(st.lists(parts, min_size=2, max_size=5 if whole else 2)))
        if token not in made and len(token) <= 24:
            made.append(token)
    longer = made[len(set(letters)) :] if draw(st.booleans()) else draw(st.permutations(made[2:]))
    return [bytes([byte]) for byte in range(256)] + [t for t in dict.fromkeys(longer) if len(t) > 1]


def rank_file(tokens: list[bytes]) -> bytes:
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)]
    return b"".join(lines)
