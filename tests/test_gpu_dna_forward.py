"""The tables of the tokens that end at a place, and what the kernel makes of a wrong guess."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu import dna_forward, dna_tables
from gpu.engine import GpuEngine
from tests.emulated_device import EmulatedDevice
from tests.test_gpu_dna_bpe import merge_lists, vocabulary_of
from vocabularies import reference
from vocabularies.batch import Batch
from vocabularies.builtin import load
from vocabularies.vocabulary import Vocabulary

NO_TOKEN = 0xFFFF


def texts_of(letters: int, bases: bytes) -> list[str]:
    """All texts of so many bases."""
    return ["".join(text) for text in itertools.product(bases.decode(), repeat=letters)]


def vocabularies() -> st.SearchStrategy[Vocabulary]:
    """Without begin and end tokens, of tokens of up to 32 letters."""
    short = merge_lists("ACGT").map(
        lambda merges: [pair for pair in merges if len("".join(pair)) <= 32]
    )
    return short.map(lambda merges: replace(vocabulary_of("ACGT", merges), prefix=(), suffix=()))


def endings_of(vocabulary: Vocabulary) -> tuple[bytes, dna_forward.Endings]:
    tables = dna_tables.dna_tables(vocabulary)
    assert tables.endings is not None
    return tables.letters.bases, tables.endings


@settings(max_examples=5, deadline=None)
@given(vocabularies())
def test_the_likely_token_is_the_last_one_of_most_texts(vocabulary):
    bases, endings = endings_of(vocabulary)
    random_endings = np.random.default_rng(3).choice(texts_of(endings.k, bases), 20)
    before = ["".join(two) for two in itertools.product(bases.decode(), repeat=2)]
    for ending in map(str, random_endings):
        counts = np.zeros(len(vocabulary), int)
        for first in before:
            counts[reference.encode(vocabulary, first + ending).ids[-1]] += 1
        newest_first = sum(
            bases.decode().index(letter) << 2 * i for i, letter in enumerate(ending[::-1])
        )
        assert counts[endings.likely[newest_first]] == counts.max(), ending


@settings(max_examples=25, deadline=None)
@given(vocabularies())
def test_tokens_name_the_longest_shorter_one_that_ends_them(vocabulary):
    _, endings = endings_of(vocabulary)
    lengths = endings.tokens[:, 0] & 0xFF
    tokens = {token: i for i, token in enumerate(vocabulary.tokens) if token and lengths[i]}
    assert tokens
    for token, token_id in tokens.items():
        shorter = [tokens[token[n:]] for n in range(1, len(token)) if token[n:] in tokens]
        chain = int(endings.tokens[token_id, 0])
        assert chain == len(token) | (shorter[0] if shorter else NO_TOKEN) << 8


def test_what_the_kernel_has_no_room_for_is_walked_through(monkeypatch):
    """Tokens of 33 letters, mixed letters, too many ids."""
    doubled = [("A" * 2**i, "A" * 2**i) for i in range(5)]
    covered = vocabulary_of("ACGT", doubled)
    longer = vocabulary_of("ACGT", [*doubled, ("A" * 32, "A")])
    mixed = vocabulary_of("ACGTN", [("A", "C"), ("G", "T"), ("A", "N")])
    assert kernels_of(covered) == {"forward_windows"}
    assert kernels_of(longer) == kernels_of(mixed) == {"walk_windows"}
    assert kernels_of(load("dnabert2")) == {"forward_windows"}
    assert kernels_of(load("gena_lm_t2t_32k")) == {"walk_windows"}
    monkeypatch.setattr(dna_forward, "FORWARD_IDS", len(covered) - 1)
    assert kernels_of(covered) == {"walk_windows"}


def kernels_of(vocabulary: Vocabulary) -> set[str]:
    content = dna_tables.prepare_dna(vocabulary)[0].content
    return {"forward_windows", "walk_windows"} & {*content}


@pytest.mark.parametrize("letters", [1, 7])
def test_a_wrong_guess_costs_time_only(monkeypatch, letters):
    """Whatever token of the last letters is tried first, one token ends a place."""
    rng = np.random.default_rng(5)

    def wrong(last, spelled, tokens, k):
        likely = np.zeros(4**k, np.uint16)
        for code in range(4**k):  # Of letters, the newest one lowest.
            found = (spelled[(4**n - 4) // 3 + turned_code(code, n)] for n in range(letters, 0, -1))
            likely[code] = next(token for token in found if token != NO_TOKEN)
        return likely

    def turned_code(newest_first, n):
        return sum((newest_first >> 2 * i & 3) << 2 * (n - 1 - i) for i in range(n))

    monkeypatch.setattr(dna_forward, "_likely_tokens", wrong)
    engine, vocabulary = GpuEngine(EmulatedDevice(1 << 33), 1 << 30), load("dnabert2")
    engine.fused_bytes = 0
    text = (
        "".join(rng.choice(list("ACGT"), 3000)) + "A" * 700 + "CA" * 300 + "N" * 9 + "ACGTT" * 100
    )
    rows = [text, text[17:], "", "A", "N"]
    assert engine.encode(vocabulary, Batch(rows)).ids.tolist() == [
        token_id for row in rows for token_id in reference.encode(vocabulary, row).ids
    ]
