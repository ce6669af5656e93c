"""The tables of the tokens that may end at a place, and the kernels that read them."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.dna import suffix_tables
from gpu.dna import tables as dna_tables
from gpu.engine import GpuEngine
from gpu.kernels.job import constant
from tests.support.each_device import limit_fused
from tests.support.emulation.device import EmulatedDevice
from tests.support.inputs.letter_bpe import merge_lists, vocabulary_of
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

EITHER, OPEN = 1, 2
MOST_LOOKED = constant("MOST_LOOKED")
REAL = ("dnabert2", "gena_lm_t2t_32k")
LEVELS = {"dnabert2": 4, "gena_lm_t2t_32k": 2}
"""How often two letters more are looked at; GENA-LM has too many texts that are open for more."""


def vocabularies() -> st.SearchStrategy[Vocabulary]:
    """Make vocabularies without begin and end tokens."""
    return merge_lists("ACGT").map(
        lambda merges: replace(vocabulary_of("ACGT", merges), prefix=(), suffix=())
    )


def tables_of(
    vocabulary: Vocabulary,
) -> tuple[bytes, suffix_tables.Endings, dna_tables.DnaTables]:
    tables = dna_tables.dna_tables(vocabulary)
    assert tables.endings is not None
    return tables.letters.bases, tables.endings, tables


def number_of(text: str, bases: bytes) -> int:
    return sum(bases.decode().index(letter) << 2 * i for i, letter in enumerate(text))


def left_by(endings: suffix_tables.Endings, bases: bytes, text: str) -> tuple[int, int]:
    """Look up, as the kernels do, the possible last tokens of a text."""
    x, y = endings.last[number_of(text[-endings.k :], bases)].tolist()
    text = text[: -endings.k]
    for _ in range(endings.levels):
        if y >> 30 == OPEN and len(text) >= 2:
            x, y = endings.opened[x + number_of(text[-2:], bases)].tolist()
            text = text[:-2]
    return x, y


def listed_of(endings: suffix_tables.Endings, x: int, y: int) -> set[tuple[int, int]]:
    """Return left classes and letters of the tokens that are listed for open texts, short first."""
    begin, end = endings.begins[x // 16 : x // 16 + 2].tolist()
    assert begin == y & (1 << 30) - 1
    listed = [(x & 0xFFFF, y & 0xFF, y >> 31) for x, y in endings.listed[begin:end].tolist()]
    assert [is_last for *_, is_last in listed] == [0] * (len(listed) - 1) + [1]
    assert [length for _, length, _ in listed] == sorted(length for _, length, _ in listed)
    return {(left, length) for left, length, _ in listed}


def last_token(vocabulary: Vocabulary, tables: dna_tables.DnaTables, text: str) -> tuple[int, int]:
    """Return the left class and the letters of a text's last token."""
    record = int(tables.tokens[tokenizer.encode(vocabulary, text).ids[-1]])
    return record >> 24 & 0xFFFF, record & 0xFF


@settings(max_examples=40, deadline=None)
@given(vocabularies(), st.data())
def test_what_letters_leave_has_the_last_token(vocabulary, data):
    bases, endings, tables = tables_of(vocabulary)
    for _ in range(20):
        text = data.draw(st.text(bases.decode(), min_size=endings.k, max_size=40))
        x, y = left_by(endings, bases, text)
        first, second = (x & 0xFFFF, y >> 16 & 15), (y & 0xFFFF, y >> 20 & 15)
        left = {0: {first}, EITHER: {first, second}}.get(y >> 30) or listed_of(endings, x, y)
        assert last_token(vocabulary, tables, text) in left, text


@settings(max_examples=10, deadline=None)
@given(vocabularies())
def test_texts_of_few_letters_have_their_last_token(vocabulary):
    bases, endings, tables = tables_of(vocabulary)
    assert len(endings.short) == (4**endings.k - 4) // 3
    for length in range(1, min(endings.k, 5)):
        for letters in itertools.product(bases.decode(), repeat=length):
            text = "".join(letters)
            found = int(endings.short[(4**length - 4) // 3 + number_of(text, bases)])
            assert (found & 0xFFFF, found >> 16) == last_token(vocabulary, tables, text)


@pytest.mark.parametrize(
    ("name", "sure", "left_open"), [(REAL[0], 0.59, 0.14), (REAL[1], 0.59, 0.11)]
)
@pytest.mark.slow
def test_most_letters_leave_one_token(name, sure, left_open):
    kinds = tables_of(load(name))[1].last[:, 1] >> 30
    assert np.mean(kinds == 0) > sure
    assert np.mean(kinds == OPEN) < left_open


def test_all_letters_before_a_token_leave_fewer_to_be_listed(monkeypatch):
    """Fewer than for eight letters; both are right, but listed tokens take time."""
    vocabulary = load("dnabert2")
    found = tables_of(vocabulary)[1]
    monkeypatch.setattr(suffix_tables, "LATEST", suffix_tables.DENSE)
    of_eight = tables_of(vocabulary)[1]
    assert found.levels == of_eight.levels == LEVELS["dnabert2"]
    assert 2 * len(found.begins) < len(of_eight.begins)


@pytest.mark.slow
def test_which_kernels_find_paths(monkeypatch):
    """The length and the number of tokens decide; the walk handles the deferred windows."""
    doubled = [("A" * 2**i, "A" * 2**i) for i in range(5)]
    covered = vocabulary_of("ACGT", doubled)
    longer = vocabulary_of("ACGT", [*doubled, ("A" * 32, "A")])
    only_mixed = vocabulary_of("ACGTN", [])
    assert (
        kernels_of(covered)
        == kernels_of(load(REAL[0]))
        == ["forward_windows_copied", "walk_windows"]
    )
    assert kernels_of(longer) == kernels_of(load(REAL[1])) == ["forward_windows", "walk_windows"]
    assert kernels_of(only_mixed) == ["walk_windows"]
    monkeypatch.setattr(suffix_tables, "COPIED_TOKENS", 5)
    assert kernels_of(covered) == ["forward_windows", "walk_windows"]


def kernels_of(vocabulary: Vocabulary) -> list[str]:
    content = dna_tables.prepare_dna(vocabulary).family.content
    return [name for name in content if name.startswith(("forward_", "walk_"))]


def texts_for(seed: int) -> list[str]:
    """Return random, repeated and short texts, with gaps and with merging letters besides bases."""
    rng = np.random.default_rng(seed)
    text = "".join(rng.choice(list("ACGT"), 3000)) + "A" * 700 + "CA" * 300 + "N" * 9
    text += "ACGTT" * 100 + "N" * 12 + "ACGTNACGNNACG" + "".join(rng.choice(list("ACGT"), 600))
    short = ["".join(rng.choice(list("ACGT"), 1 + i % 20)) for i in range(1000)]
    return [text, text[17:], "", "A", "N", *short, "A" * 40, "N" * 300, "ACG" + "N" * 150 + "T"]


def test_long_tokens_are_told_apart_by_their_first_letters():
    """They share their last 32 letters, and stand at places where tokens are listed."""
    end = "".join(np.random.default_rng(2).choice(list("CT"), 30)) + "GA"
    merges = [(end[i], end[i + 1 :]) for i in range(30, -1, -1)]
    vocabulary = vocabulary_of("ACGT", [*merges, ("C", end), ("GT", end), ("G", "T")])
    assert tables_of(vocabulary)[1].keys.size
    rows = [before + end + behind for before in ("C", "T", "GC", "GT") for behind in ("", "G")]
    assert_encodes(vocabulary, 0, rows)


@pytest.mark.parametrize("behind", ["ACCACAACCCACA", "ACCACAACCCACAC"])
def test_tokens_of_as_many_letters_as_are_looked_at(behind):
    """One token is the only one left; and letters that no text has, or fewer than four."""
    words = ["".join(word) for size in range(9) for word in itertools.product("AC", repeat=size)]
    merges = [("G" + word[:-1], word[-1]) for word in words[1:]]
    chain = [("G" + behind[:at], behind[at]) for at in range(len(behind))]
    vocabulary = vocabulary_of("ACG", [*merges, *(pair for pair in chain if pair not in merges)])
    endings = tables_of(vocabulary)[1]
    assert endings.k + 2 * endings.levels == MOST_LOOKED
    assert np.diff(endings.begins).min() > 1, "kernels ask for one token of a list or more"
    token = "G" + behind
    assert_encodes(vocabulary, 1 << 22, [token, "A" + token, token * 9, "GACC" * 90 + token + "CG"])


@pytest.mark.parametrize("fused_bytes", [0, 1 << 22])
@pytest.mark.parametrize("name", REAL)
@pytest.mark.slow
def test_ids_of_real_vocabularies(name, fused_bytes):
    assert_encodes(load(name), fused_bytes)


@pytest.mark.parametrize("opened", [0, 1 << 20])
@pytest.mark.parametrize("name", REAL)
@pytest.mark.slow
def test_letters_that_leave_too_many_cost_time_only(monkeypatch, name, opened):
    """Tokens are listed although letters leave one or two, at the first level or later."""
    remaining = suffix_tables.LastTokens.remaining

    def less(self, texts, letters, may_be):
        made = remaining(self, texts, letters, may_be)
        made[(np.arange(len(made)) % 4 > 2) & may_be.any(1)] = 0, OPEN << 30
        return made

    monkeypatch.setattr(suffix_tables.LastTokens, "remaining", less)
    monkeypatch.setattr(suffix_tables, "MOST_OPENED", opened)
    monkeypatch.setattr(dna_tables, "dna_tables", functools.cache(dna_tables.dna_tables))
    endings = tables_of(load(name))[1]
    assert endings.levels == (LEVELS[name] if opened else 0)
    assert_encodes(load(name), 0)


def assert_encodes(vocabulary: Vocabulary, fused_bytes: int, rows: list[str] | None = None) -> None:
    engine, rows = GpuEngine(EmulatedDevice(1 << 33), 1 << 30), rows or texts_for(5)
    limit_fused(engine, fused_bytes)
    assert engine.encode(vocabulary, Batch(rows)).ids.tolist() == [
        token_id for row in rows for token_id in tokenizer.encode(vocabulary, row).ids
    ]
