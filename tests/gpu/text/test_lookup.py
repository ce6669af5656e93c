"""Pieces that need no merging, and borders that are certain: against the definition."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.batch.transfer import fetch, launch, pack_rows
from gpu.kernels.families import encode_kernels
from gpu.memory.workspace import Workspace
from gpu.text import cjk_characters
from gpu.text.bpe_tables import bpe_tables
from gpu.text.cjk_characters import LISTED_IDS, LISTED_SHIFT, RANGES
from tests.gpu.text.check_ids import check_pieces, engine
from tests.gpu.text.random_vocabularies import SEEDS, text_of, vocabularies
from vocabularies.builtin import load
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.tokenizer import encode

WHITE = [" ", "\n", "\t", "\r"]
LANE, WORD, WARP = 16, 64, 512
SIZES = [size + i for size in (LANE, WORD, WARP, 2 * WARP) for i in (-1, 0, 1)]


@contextmanager
def listed_by_all() -> Iterator[None]:
    """Vocabularies of any size list characters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cjk_characters, "MIN_TOKENS", 0)
        yield


def merged(vocabulary: Vocabulary, piece: bytes) -> list[int]:
    """The ids that the definition gives."""
    return encode(vocabulary, piece.decode()).ids


@settings(max_examples=8)
@given(data=st.data(), seed=SEEDS)
def test_listed_characters_have_the_ids_of_the_definition(data, seed):
    chance = random.Random(seed)
    letters = [chr(chance.randrange(*chance.choice(RANGES))) for _ in range(20)]
    vocabulary = data.draw(vocabularies([" ", *letters]))
    with listed_by_all():
        tables = bpe_tables(vocabulary, chance.getrandbits(32))
    meta = tables.short_tokens[:, 3]
    rows = tables.short_tokens[(meta >> 27 & 1).astype(bool) & (meta >> 28 > 0)]
    found = {row[:3].tobytes()[: row[3] >> 28]: int(row[3]) & LISTED_IDS - 1 for row in rows}
    for letter in letters:
        for piece in (letter.encode(), b" " + letter.encode()):
            ids = merged(vocabulary, piece)
            assert (piece in found) == (len(ids) > 1)
            if piece in found:
                which = found[piece] & (1 << LISTED_SHIFT) - 1
                assert tables.listed_ids[which].tolist() == [*ids, *[0] * (4 - len(ids))]
                assert (found[piece] >> LISTED_SHIFT) + 2 == len(ids)


def test_small_vocabularies_list_none():
    assert len(bpe_tables(load("gpt2"), 1).listed_ids) > 10_000
    bytes_only = Vocabulary(tuple(bytes([i]) for i in range(256)), Bpe(()))
    assert bpe_tables(bytes_only, 1).listed_ids.shape == (0, 4)


@settings(max_examples=12)
@given(data=st.data(), seed=SEEDS)
def test_listed_characters_are_written(data, seed):
    chance = random.Random(seed)
    letters = [chr(chance.randrange(*chance.choice(RANGES))) for _ in range(3)] + ["\ue000", "é"]
    vocabulary = data.draw(vocabularies([" ", *letters]))
    texts = [chance.choice(["", " ", "a"]) + chance.choice(letters) for _ in range(300)]
    with listed_by_all(), engine() as made:
        check_pieces(made, vocabulary, texts)


@settings(max_examples=12)
@given(data=st.data(), seed=SEEDS)
def test_bytes_that_do_not_merge_are_written_as_often_as_they_stand(data, seed):
    chance = random.Random(seed)
    letters = [*WHITE, "=", "é"]
    vocabulary = data.draw(vocabularies(letters))
    texts = []
    for _ in range(120):
        first, repeated = chance.choice(letters), chance.choice(letters)
        texts.append(first + repeated * chance.randint(1, 130) + chance.choice(["", "", "="]))
    with engine() as made:
        check_pieces(made, vocabulary, texts)


@contextmanager
def launched(vocabulary: Vocabulary, rows: list[bytes], last: str) -> Iterator[Workspace]:
    """The workspace of these rows behind the kernels up to this one."""
    text, ends = b"".join(rows), np.cumsum([0, *map(len, rows)]).astype(np.int64)
    with (
        engine() as made,
        made.resources.residents.using(vocabulary) as resident,
        made.resources.workspaces.lend(len(text), len(rows)) as workspace,
    ):
        pack_rows(
            workspace, resident, np.frombuffer(text, np.uint8), ends, made.resources.processors
        )
        names = encode_kernels(resident.family, num_rounds=resident.num_rounds)
        launch(workspace, names[: names.index(last) + 1], made.resources.processors)
        yield workspace


def certain_starts(text: bytes, ends: list[int], inside: set[tuple[int, int]]) -> list[int]:
    """Where pieces begin behind cutting; `inside` has neighbours, of ASCII, in tokens."""
    rows = {0, *ends[:-1]}
    starts = []
    for i, (left, right) in enumerate(zip(b"\0" + text, text, strict=False)):
        high = left >= 0x80 or right >= 0x80
        white = left <= 0x20 and right <= 0x20 and (left != right or i % WORD == 0)
        white &= i % LANE == 0 or i - 1 not in rows
        asked = right & 0xC0 != 0x80 if high else white
        if i in rows or (asked and (left, right) not in inside):
            starts.append(i)
    return starts


@settings(max_examples=20)
@given(data=st.data(), seed=SEEDS)
def test_what_is_cut_are_the_borders_that_no_token_lies_across(data, seed):
    """No token has a character beyond ASCII, so the filter says of none too often."""
    chance = random.Random(seed)
    vocabulary = data.draw(vocabularies(WHITE))
    sizes = [chance.choice([*SIZES, chance.randint(1, 99)]) for _ in range(12)]
    rows = [text_of(chance, [*WHITE, "a", "é", "中", "😀"], size).encode() for size in sizes]
    text, ends = b"".join(rows), list(itertools.accumulate(map(len, rows)))
    inside = {
        pair
        for token in vocabulary.tokens
        for pair in zip(token or b"", (token or b"")[1:], strict=False)
    }
    with launched(vocabulary, rows, "split_at_certain") as workspace:
        words = fetch(workspace, "starts", np.uint64, (len(text) + 63) // 64)
    found = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: len(text)])
    assert found.tolist() == certain_starts(text, ends, inside)


@settings(max_examples=12)
@given(data=st.data(), seed=SEEDS)
def test_white_space_and_characters_have_the_ids_of_the_reference(data, seed):
    chance = random.Random(seed)
    letters = [*WHITE, "a", "é", "中", "😀"]
    vocabulary = data.draw(vocabularies(letters))
    with engine() as made:
        check_pieces(made, vocabulary, [text_of(chance, letters, size) for size in SIZES])


def test_blanks_of_gpt2_are_not_merged():
    """None of these reaches the lists of misses."""
    text = ("\n" + " " * 90 + "x\n\n\t\t\t  y" + " " * 200).encode()
    with launched(load("gpt2"), [text], "look_up") as workspace:
        assert fetch(workspace, "miss_counts", np.uint32, 8).sum() == 0
