"""The papers' kernels, compiled as C++, merge as Hugging Face does without the pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.kernels.block_merge import EXACT
from benchmarks.papers.kernels.merges_alone import chunks_of
from tests.benchmarks.papers.emulated_kernels import merged, reference
from vocabularies.builtin import load

TEXTS = (
    "",
    "a",
    "1000 .... aaaaaaaaaaaa        \n\n\n",
    "There were 12,000 eggs in 1000 baskets; 3/4 of them hatched.\n",
    "naïve café 漢字 🙂" * 3,
    "aaaaabaaaabaaab" * 9,
    "The quick brown fox jumps over the lazy dog. " * 12,
)


@pytest.mark.parametrize("threads", [32, 256, 1024])
@pytest.mark.parametrize("kernel", EXACT)
def test_ids_are_those_of_merges_alone(kernel: str, threads: int) -> None:
    texts = TEXTS if threads < 1024 else TEXTS[:4]
    expected = reference().encode(texts)
    assert merged(kernel, [text.encode() for text in texts], threads) == expected


@given(st.lists(st.text("ab 10.\n\u00e9", max_size=40), min_size=1, max_size=3))
def test_random_texts_are_merged_alike(texts: list[str]) -> None:
    expected = reference().encode(texts)
    for kernel in EXACT:
        assert merged(kernel, [text.encode() for text in texts], 32) == expected


def test_chunks_may_cut_a_character() -> None:
    chunks = chunks_of("漢字 and 🙂 again".encode(), 5)
    assert max(map(len, chunks)) == 5
    assert merged("merge_leftmost", chunks, 32) == reference().encode_bytes(chunks)


def test_local_minima_decode_to_the_text_and_are_not_exact() -> None:
    texts = [TEXTS[5], *(f"{word}ing the {word}" * 8 for word in ("sing", "ringer", "stressed"))]
    found = merged("merge_local_minima", [text.encode() for text in texts], 32)
    tokens = load("gpt2").tokens
    assert [b"".join(tokens[i] or b"" for i in row).decode() for row in found] == texts


def test_the_pattern_makes_other_ids_of_numbers() -> None:
    assert reference().encode(["1000"]) == [[12825]]  # One token; the paper says "100", "0".
