"""One window by a whole block, cuda/text/split/merge_by_block.cuh, against the reference."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.batch.transfer import pack_rows
from gpu.engine import GpuEngine
from gpu.kernels.job import constant
from tests.gpu.text.test_merge import SEEDS, vocabulary_of
from tests.gpu.text.test_split import doubled, random_merges
from tests.support import gpu_emulation
from tests.support.emulated_device import EmulatedDevice
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.tokenizer import encode

WINDOW, THREADS = constant("WINDOW_1"), constant("BRIDGE_THREADS")


def borders_of(vocabulary: Vocabulary, texts: list[str]) -> list[list[int]]:
    """Where the block finds borders in each text, its end among them."""
    made = GpuEngine(EmulatedDevice(), 1 << 27)
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.cumsum([0, *(len(text.encode()) for text in texts)]).astype(np.int64)
    words = np.full((len(texts), WINDOW // 32 + 1), 0xABABABAB, np.uint32)
    with (
        made.residents.using(vocabulary) as resident,
        made.workspaces.lend(len(data), len(texts)) as workspace,
    ):
        pack_rows(workspace, resident, data, offsets, made.processors)
        job = workspace.job[0].copy()
        job["ids"] = words.ctypes.data
        gpu_emulation.launch("probe_rounds", 1, THREADS, np.asarray(job))
    made.close()
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    return [np.flatnonzero(row).tolist() for row in bits]


def check(vocabulary: Vocabulary, texts: list[str]) -> None:
    """Borders are where the tokens of the reference begin, and at the end."""
    for text, found in zip(texts, borders_of(vocabulary, texts), strict=True):
        lengths = [len(vocabulary.tokens[i]) for i in encode(vocabulary, text).ids]
        assert found == list(itertools.accumulate(lengths, initial=0)), text


def texts_of(chance: random.Random, letters: str) -> list[str]:
    """Random ones and runs, of any length that a window has."""
    texts = []
    for _ in range(6):
        size = chance.choice(
            [1, 2, 31, 32, 33, 256, 257, WINDOW - 1, WINDOW, chance.randint(1, WINDOW)]
        )
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            unit = "".join(chance.choices(letters, k=chance.choice([1, 1, 2, 3, 40])))
            parts.append(unit * chance.choice([1, 2, 15, 64, 300]))
        texts.append("".join(parts)[:size])
    return texts


def random_case(seed: int, num_letters: int, in_order: bool) -> tuple[Vocabulary, list[str]]:
    """Random merges and those of runs of one letter, and texts for them."""
    chance = random.Random(seed)
    letters = "abcd"[:num_letters]
    merges = random_merges(chance, letters, chance.randint(0, 50))
    merges += [merge for merge in doubled(b"a", 5) if merge not in merges]
    if not in_order:
        chance.shuffle(merges)
    return vocabulary_of(merges), texts_of(chance, letters)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, num_letters=st.integers(1, 4), in_order=st.booleans())
def test_a_window_has_the_borders_of_the_reference(seed, num_letters, in_order):
    """Chains of equal ranks over several words, late ranks, and every length."""
    check(*random_case(seed, num_letters, in_order))


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base"])
def test_so_has_one_of_published_vocabularies(name):
    chance = random.Random(8)
    texts = ["".join(chance.choices("etaoinshrdlu", k=size)) for size in (1, 300, WINDOW)]
    check(load(name), [*texts, "a" * WINDOW, "".join(sorted(texts[-1]))])
