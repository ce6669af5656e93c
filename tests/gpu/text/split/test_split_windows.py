"""Windows of long pieces on the emulated device: where they begin, and their boundaries."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.batch.transfer import fetch, launch, pack_rows
from gpu.engine import GpuEngine
from gpu.kernels.families import encode_kernels
from gpu.kernels.job import constant
from gpu.text.bpe_tables import bpe_tables
from tests.gpu.text.check_ids import check_long_pieces
from tests.gpu.text.random_vocabularies import SEEDS, doubled, random_merges, vocabulary_of
from tests.gpu.text.split.test_chain import STRIDE, WINDOW, WINDOW_BYTES
from tests.support.emulation.device import EmulatedDevice
from vocabularies.model.vocabulary import Vocabulary

FAR_BACK = 512 * constant("BACK_LOADS")


def begins_of(vocabulary: Vocabulary, text: str) -> list[int]:
    """Where the windows of one row begin."""
    made, data = GpuEngine(EmulatedDevice(), 1 << 27), np.frombuffer(text.encode(), np.uint8)
    with (
        made.resources.residents.using(vocabulary) as resident,
        made.resources.workspaces.lend(len(data), 1) as lent,
    ):
        pack_rows(
            lent, resident, data, np.array([0, len(data)], np.int64), made.resources.processors
        )
        kernels = encode_kernels(resident.family, num_rounds=resident.num_rounds)
        launch(lent, kernels[: kernels.index("write_borders")], made.resources.processors)
        count = int(fetch(lent, "window_counts", np.uint64, 1)[0]) & (1 << 40) - 1
        windows = fetch(lent, "merged_ids", np.uint8, count * WINDOW.itemsize).view(WINDOW)
    made.close()
    return [int(begin) for begin in windows["begin"]]


@pytest.mark.parametrize("across", [0, 1])
def test_a_window_begins_where_a_run_has_a_token(across):
    """Tokens of 64 letters, the first letter now and then another one's; the last ends the text."""
    merges, chance = [(b"b", b"a")][:across] + doubled(b"a", 6), random.Random(3)
    vocabulary = vocabulary_of(merges)
    assert bpe_tables(vocabulary, 1).run_steps[ord("a")] == 64
    sizes = [chance.choice([70, 300, 1000, 3000, 9000]) + chance.randint(0, 99) for _ in range(12)]
    text = "b".join("a" * size for size in sizes)
    for end in range(0, 600, 67):
        content, moved = text[: len(text) - end], 0
        begins = begins_of(vocabulary, content)
        for number, begin in enumerate(begins):
            place, first = STRIDE * number, content.rfind("b", 0, STRIDE * number + 1) + 1
            if number == 0 or content[place] == "b" or place - first >= FAR_BACK - 512:
                assert begin == place or place - first >= FAR_BACK - 512
                continue
            back = (place - first - (across if 0 < first < place else 0)) % 64
            if number == len(begins) - 1 and len(content) - place + back > WINDOW_BYTES:
                back -= 64
            assert begin == place - back
            moved += int(back != 0)
        assert moved > 20
        assert begins[-1] + WINDOW_BYTES >= len(content)


def test_a_run_is_looked_back_at_to_its_row_s_beginning():
    """Rows of one letter, wherever they begin: nothing in front of the first one is read."""
    vocabulary = vocabulary_of(doubled(b"a", 6))
    for sizes in (
        (1218, 1335, 1278),
        (496, 769),
        (240, 769, 700),
        *((n, 769) for n in range(1, 513, 73)),
    ):
        assert check_long_pieces(vocabulary, ["a" * size for size in sizes]).whole == 0


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, num_letters=st.integers(1, 4), in_order=st.booleans())
def test_one_window_has_the_boundaries_of_the_reference(seed, num_letters, in_order):
    """A piece of one window is split there: chains of equal ranks, late ranks, every length."""
    chance = random.Random(seed)
    letters = "abcd"[:num_letters]
    merges = random_merges(chance, letters, chance.randint(0, 50))
    merges += [merge for merge in doubled(b"a", 5) if merge not in merges]
    if not in_order:
        chance.shuffle(merges)
    texts = []
    for size in (129, 255, 256, chance.randint(129, WINDOW_BYTES - STRIDE)):
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            unit = "".join(chance.choices(letters, k=chance.choice([1, 1, 2, 3, 40])))
            parts.append(unit * chance.choice([1, 2, 15, 64, 300]))
        texts.append("".join(parts)[:size])
    assert check_long_pieces(vocabulary_of(merges), texts).whole == 0
