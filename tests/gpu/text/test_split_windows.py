"""Windows of level 0 on the emulated device: where they begin, and which are in runs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu.batch.transfer import fetch, launch, pack_rows
from gpu.engine import GpuEngine
from gpu.kernels.families import encode_kernels
from gpu.kernels.job import constant
from gpu.text.bpe_tables import bpe_tables
from tests.gpu.text.test_chain import STRIDE, WINDOW, WINDOW_BYTES
from tests.gpu.text.test_merge import vocabulary_of
from tests.gpu.text.test_split import check, doubled
from tests.support.emulated_device import EmulatedDevice
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary

FAR_BACK = 512 * constant("BACK_LOADS")
MAX_RUN_PERIOD = constant("MAX_RUN_PERIOD")


def windows_of(vocabulary: Vocabulary, text: str) -> tuple[list[int], list[int], list[int]]:
    """Of one row: where its windows begin, which are in runs (words of bits), where they end."""
    made, data = GpuEngine(EmulatedDevice(), 1 << 27), np.frombuffer(text.encode(), np.uint8)
    with made.residents.using(vocabulary) as resident, made.workspaces.lend(len(data), 1) as lent:
        pack_rows(lent, resident, data, np.array([0, len(data)], np.int64), made.processors)
        kernels = encode_kernels(resident.family, num_rounds=resident.num_rounds)
        launch(lent, kernels[: kernels.index("bridges")], made.processors)
        count = int(fetch(lent, "window_counts", np.uint64, 1)[0]) & (1 << 40) - 1
        windows = fetch(lent, "merged_ids", np.uint8, count * WINDOW.itemsize).view(WINDOW)
        bits = fetch(lent, "seam_bits", np.uint32, 4 * (count // 32 + 1)).reshape(-1, 4)[:, 1]
    made.close()
    ends = windows["begin"] + windows["length"]
    return windows["begin"].tolist(), bits.tolist(), ends.tolist()


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
        begins = windows_of(vocabulary, content)[0]
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
        assert check(vocabulary, ["a" * size for size in sizes]).whole == 0


@pytest.mark.parametrize("seed", range(3))
def test_windows_whose_text_repeats_three_times_are_in_runs(seed):
    chance = random.Random(seed)
    units = ["".join(chance.choices("abcxyz", k=chance.randint(1, 40))) for _ in range(40)]
    units += ["ab" * 40 + "".join(chance.choices("abc", k=size)) for size in range(1, 100, 9)]
    parts = [(unit * 1500)[: chance.randint(20, 1500)] for unit in units]
    text = " ".join("".join(parts[i::3]) for i in range(3))
    begins, bits, ends = windows_of(load("gpt2"), text)
    data = np.frombuffer(text.encode(), np.uint8)
    found_in_runs = 0
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        own = data[begin:end]
        repeats = any(
            (own[period:] == own[:-period]).all()
            for period in range(1, min(MAX_RUN_PERIOD, len(own) // 3) + 1)
        )
        assert bits[number // 32] >> number % 32 & 1 == repeats, begin
        found_in_runs += int(repeats)
    assert found_in_runs > 5


@pytest.mark.parametrize("unit", ["ab" * 40 + "a", "abc" * 30 + "ab", "abcd" * 25 + "abc"])
def test_a_period_is_found_behind_a_front_that_repeats_a_shorter_one_as_long(unit):
    """The front repeats a few letters up to where the text's own period ends."""
    _, bits, ends = windows_of(load("gpt2"), unit * 12)
    assert bits[0] == (1 << len(ends)) - 1
