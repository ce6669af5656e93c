"""Special tokens on the emulated device against the reference's cutting of a text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.errors import NotCovered
from gpu.kernels.job import constant
from gpu.vocabulary.special_tokens import SpecialTables, special_tables
from tests.support.data_files import data_json
from tests.support.emulation.kernels import launch, make_job
from vocabularies.batch.batch import RowRefused
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.reference.special_tokens import split_special_tokens

Mode = Literal["match", "plain", "refuse"]
TILE, BLOCK = constant("TILE"), constant("BLOCK")
NO_BYTE = constant("NO_BYTE")
FLAGS = {
    "match": constant("ROW_MATCH_SPECIAL"),
    "plain": 0,
    "refuse": constant("ROW_REFUSE_SPECIAL"),
}
SEED = 0x5EED


@dataclass
class Found:
    """The answer of the kernels for a batch, one bool a byte."""

    hard: np.ndarray
    special: np.ndarray
    starts: np.ndarray
    refused: np.ndarray
    ids: np.ndarray


def vocabulary_of(tokens: Sequence[tuple[str, bool, bool]], **more: Any) -> Vocabulary:
    """Bytes, and special tokens (content, special, normalized)."""
    contents = [content for content, _, _ in tokens]
    added = [
        SpecialToken(content, 256 + i, special=special, normalized=normalized)
        for i, (content, special, normalized) in enumerate(tokens)
    ]
    spelled = [bytes([i]) for i in range(256)] + [content.encode() for content in contents]
    return Vocabulary(tuple(spelled), Bpe(()), special_tokens=tuple(added), **more)


def bits(values: np.ndarray, num_bytes: int) -> np.ndarray:
    return np.unpackbits(values.view(np.uint8), bitorder="little")[:num_bytes].astype(bool)


def run(
    tables: SpecialTables, rows: Sequence[bytes], modes: Sequence[Mode] | None, blocks: int = 2
) -> Found:
    """All kernels of special tokens, behind a pretokenizer that begins a piece at every byte."""
    data, begins = b"".join(rows), np.cumsum([0, *map(len, rows)])
    num_bytes, num_rows = len(data), len(rows)
    tiles = -(-num_bytes // TILE)
    words = -(-num_bytes // 64)
    arrays = {
        "text": np.frombuffer(data + bytes(range(128, 192)), np.uint8),
        "row_begins": begins.astype(np.int64),
        "hard": np.zeros(words, np.uint64),
        "starts": np.full(words, ~np.uint64(0)),
        "special": np.zeros(words, np.uint64),
        "special_counts": np.zeros(8, np.uint32),
        "special_list": np.full(tiles, 77, np.uint64),
        "special_matches": np.full(tiles * TILE, 0xEEEEEEEE, np.uint32),
        "special_exits": np.full(tiles, 0xEEEE, np.uint16),
        "special_function": np.full(tiles * 256, 0xEE, np.uint8),
        "row_errors": np.zeros(num_rows, np.uint32),
        "row_refused": np.zeros(num_rows, np.uint32),
        "row_stretch": np.zeros(num_rows, np.uint32),
        "ids": np.full(num_bytes, -1, np.int32),
        "special_edges": tables.special_edges,
        "special_nodes": tables.special_nodes,
        "special_first": tables.special_first,
    }
    if modes is not None:
        arrays["row_flags"] = np.array([FLAGS[mode] for mode in modes], np.uint8)
    hard = np.zeros(64 * words, bool)
    hard[begins[begins < num_bytes]] = True
    arrays["hard"] = np.packbits(hard, bitorder="little").view(np.uint64)
    numbers = {"num_bytes": num_bytes, "num_rows": num_rows, "seed": SEED}
    job = make_job(**arrays, **numbers, special_mask=tables.special_mask)
    names = ["clear_faults", "find_special", "enter_special", "accept_special"]
    names += [f"{name}_again" for name in names[1:]] if tables.num_rounds == 2 else []
    for name in [*names, "clear_special"]:
        launch(name, blocks, BLOCK, job)
    launch("probe_special_ids", 1, BLOCK, job)
    found = (bits(arrays[name], num_bytes) for name in ("hard", "special", "starts"))
    return Found(*found, refused=arrays["row_refused"], ids=arrays["ids"])


def check(
    vocabulary: Vocabulary, rows: Sequence[bytes], modes: Sequence[Mode], blocks: int = 2
) -> None:
    """Check that the kernels find the reference's tokens; of refused rows compare the place."""
    every = all(mode == "match" for mode in modes)
    found = run(special_tables(vocabulary, SEED), rows, None if every else modes, blocks)
    begin = 0
    for row, (data, mode) in enumerate(zip(rows, modes, strict=True)):
        end = begin + len(data)
        try:
            parts = [
                p
                for p in split_special_tokens(vocabulary, data.decode(), mode)
                if isinstance(p, tuple)
            ]
        except RowRefused as refused:
            assert found.refused[row] == begin + int(refused.error.where.split()[1])
            begin = end
            continue
        assert found.refused[row] == NO_BYTE
        hard, special = np.zeros(len(data), bool), np.zeros(len(data), bool)
        starts, ids = np.ones(len(data), bool), np.full(len(data), -1)
        hard[:1] = True
        for token_id, first, last in parts:
            special[first] = hard[first] = True
            hard[last : last + 1] = True
            starts[first + 1 : last] = False
            ids[first] = token_id
        assert (found.special[begin:end] == special).all()
        assert (found.hard[begin:end] == hard).all()
        assert (found.starts[begin:end] == starts).all()
        assert (found.ids[begin:end] == ids).all()
        begin = end


OVERLAPPING = [("ab", True, False), ("ba", True, False), ("aba", False, False), ("bb", True, False)]
RUNS = [("a" * n, False, False) for n in range(2, 25)]


@pytest.mark.parametrize("mode", ["match", "plain", "refuse"])
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 4095, 4096, 4097, 9000])
def test_a_text_of_nothing_but_overlapping_tokens(mode: Mode, length: int) -> None:
    source = random.Random(length)
    text = "".join(source.choices("ab", k=length)).encode()
    check(vocabulary_of(OVERLAPPING), [text], [mode])


@pytest.mark.parametrize("blocks", [1, 5])
def test_long_runs_are_cut_alike_in_every_tile(blocks: int) -> None:
    rows = [b"a" * 30_001, b"", b"b" + b"a" * 12_000, b"a", b"a" * 23, b"b" * 5000 + b"a" * 9000]
    check(vocabulary_of(RUNS), rows, ["match"] * len(rows), blocks)
    check(vocabulary_of(RUNS), rows, ["plain"] * len(rows), blocks)


@pytest.mark.parametrize("also", [[], [("bb", False, False)], [("bb", False, True)]])
@pytest.mark.parametrize("normalized", [False, True])
def test_runs_that_fall_back_into_step_far_away(
    also: list[tuple[str, bool, bool]], normalized: bool
) -> None:
    """Many tiles in a row whose entry is not known, more than are followed at a time."""
    row = b"a" * (19 * TILE) + b"b" + b"a" * (3 * TILE) + b"bbb"
    tokens = [("a" * 7, True, normalized), ("aaaaab", True, normalized), *also]
    check(vocabulary_of(tokens), [b"aa", row], ["match"] * 2)


@pytest.mark.parametrize("ahead", range(7))
def test_a_token_inside_of_what_the_tile_before_takes(ahead: int) -> None:
    tokens = [("abcdef", True, False), ("ef", True, False), ("f", False, False)]
    for looked_for in (tokens, tokens[:2]):
        row = b"." * (TILE - ahead) + b"abcdef..ef"
        check(vocabulary_of(looked_for), [row], ["match"])
        check(vocabulary_of(looked_for), [row], ["plain"])


@pytest.mark.parametrize("tokens", [["<a>", "<b>", "</a>"], ["<a>", "x"], ["é", "北京"], []])
def test_a_candidate_begins_with_two_bytes_that_some_token_has(tokens: list[str]) -> None:
    """Behind a token of one byte any other may come."""
    tables = special_tables(vocabulary_of([(token, True, False) for token in tokens]), SEED)
    first, second = np.unpackbits(tables.special_first[0].view(np.uint8), axis=1, bitorder="little")
    contents = [token.encode() for token in tokens]
    assert set(np.flatnonzero(first)) == {content[0] for content in contents}
    short = any(len(content) == 1 for content in contents)
    assert set(np.flatnonzero(second)) == (
        set(range(256)) if short else {content[1] for content in contents}
    )
    assert not tables.special_first[1].any()


@pytest.mark.parametrize("ahead", range(1, 18))
@pytest.mark.slow
def test_a_token_across_the_bytes_of_two_threads(ahead: int) -> None:
    for row in (b"." * (TILE - ahead) + b"<ab>" + b"<a" * 20, b"." * (64 - ahead) + b"<ab>"):
        for end in range(len(row) - 45, len(row) + 1):
            check(vocabulary_of([("<ab>", True, False), ("b", True, True)]), [row[:end]], ["match"])


def test_the_longest_token_that_is_covered() -> None:
    longest = "".join(random.Random(1).choices("ab", k=256))
    vocabulary = vocabulary_of([(longest, True, False), (longest[1:], True, False)])
    for gap in (0, 1, 3839, 3840, 3841, 4095):
        check(vocabulary, [b"c" * gap + longest.encode() * 40], ["match"])


def test_tokens_of_no_row_cross_into_another() -> None:
    vocabulary = vocabulary_of([("abc", True, False), ("a", True, True), ("bc", False, True)])
    rows = [b"ab", b"c", b"a", b"", b"bc", b"abc", b"", b"ab"] * 40
    for mode in FLAGS:
        check(vocabulary, rows, [mode] * len(rows))  # type: ignore[list-item]


def test_a_match_that_does_not_count_uses_its_text_up_for_one_round() -> None:
    tokens = [("abc", True, False), ("bc", False, False), ("c", False, True)]
    check(vocabulary_of(tokens), [b"abc bc c", b"xbcabc"], ["plain", "plain"])


def test_which_token_of_two_rounds_is_refused() -> None:
    """The second round searches a stretch only if the first round refused nothing in it."""
    vocabulary = vocabulary_of([("A", True, False), ("o", False, False), ("Z", True, True)])
    rows = [b"..Z..A", b"..Z.oA", b"A.Z", b"Z", b"o.o.Z", b"", b"oZA", b"oZoA" + b"." * 70 + b"A"]
    check(vocabulary, rows, ["refuse"] * len(rows))
    check(vocabulary, [b"." * 4096 + row for row in rows], ["refuse"] * len(rows))
    far = [b"." * size for size in (70, 9000, *range(1900, 2300, 21))]
    rows = [b"o" + dots + b"Z" + dots + b"A" for dots in far]
    rows += [b"Z" + dots + b"o" + dots + b"ZA" for dots in far]
    check(vocabulary, rows, ["refuse"] * len(rows))


LETTERS = st.text("abc", min_size=1, max_size=5)


@settings(max_examples=120)
@given(
    contents=st.lists(LETTERS, min_size=1, max_size=6, unique=True),
    kinds=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=6, max_size=6),
    rows=st.lists(
        st.tuples(st.text("abcé", max_size=40), st.sampled_from([*FLAGS])), min_size=1, max_size=9
    ),
    padding=st.sampled_from([0, 0, 0, TILE - 60, TILE - 3, TILE]),
)
def test_random_tokens_in_random_rows(
    contents: list[str],
    kinds: list[tuple[bool, bool]],
    rows: list[tuple[str, Mode]],
    padding: int,
) -> None:
    tokens = [(content, *kind) for content, kind in zip(contents, kinds, strict=False)]
    texts = [b"d" * padding, *(text.encode() for text, _ in rows)]
    check(vocabulary_of(tokens), texts, ["plain", *(mode for _, mode in rows)])


@settings(max_examples=5)
@given(
    contents=st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=6, unique=True),
    seed=st.integers(0, 1 << 30),
)
def test_random_tokens_over_several_tiles(contents: list[str], seed: int) -> None:
    source = random.Random(seed)
    rows = [
        "".join(source.choices("ab", weights=(9, source.randint(0, 9)), k=length)).encode()
        for length in (5000, 13000, 77)
    ]
    tokens = [(content, bool(i % 2), bool(i % 3)) for i, content in enumerate(contents)]
    check(vocabulary_of(tokens), rows, ["match", "plain", "refuse"])
    check(vocabulary_of(tokens), rows, ["plain", "match", "match"])


def test_real_special_tokens() -> None:
    tokens = data_json("vocab/deepseek_v3/tokenizer.json.xz")["added_tokens"]
    vocabulary = vocabulary_of([(t["content"], t["special"], t["normalized"]) for t in tokens])
    assert special_tables(vocabulary, SEED).num_rounds == 2
    source = random.Random(2)
    pieces = [t["content"] for t in tokens] + ["<", "<｜", "｜>", "你好", "<|EOT|", "|>", " x "]
    rows = ["".join(source.choices(pieces, k=200)).encode() for _ in range(6)]
    check(vocabulary, rows, [*FLAGS] * 2)  # type: ignore[list-item]


def test_text_that_is_no_utf8_leads_nowhere() -> None:
    source = random.Random(3)
    rows = [source.randbytes(length) for length in (100, 0, 4096, 5000)]
    found = run(special_tables(vocabulary_of([("é", True, False)]), SEED), rows, None)
    assert (found.special <= found.hard).all()


def test_what_is_not_covered() -> None:
    vocabulary = vocabulary_of([("a", True, False)])
    (token,) = vocabulary.special_tokens
    for change in ({"lstrip": True}, {"rstrip": True}, {"single_word": True}):
        changed = replace(vocabulary, special_tokens=(replace(token, **change),))
        with pytest.raises(NotCovered, match="special token 'a'"):
            special_tables(changed, SEED)
    later = (replace(token, normalized=True),)
    with pytest.raises(NotCovered, match="lowercase"):
        special_tables(
            replace(vocabulary, special_tokens=later, normalizers=(Normalizer("lowercase"),)), SEED
        )
    with pytest.raises(NotCovered, match="256 bytes"):
        special_tables(vocabulary_of([("a" * 257, True, False)]), SEED)


def test_tokens_that_nobody_looks_for() -> None:
    vocabulary = vocabulary_of([("a", True, False)])
    unmatched = replace(vocabulary.special_tokens[0], matched=False, lstrip=True)
    tables = special_tables(replace(vocabulary, special_tokens=(unmatched,)), SEED)
    assert tables.num_rounds == 0
    assert not run(tables, [b"aaa"], None).special.any()
