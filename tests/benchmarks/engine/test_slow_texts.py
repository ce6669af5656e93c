"""The benchmark of slow texts: the texts that it makes, and that a wrong id ends it."""

from __future__ import annotations

import dataclasses
import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.engine.references.published_vocabularies import read_published
from benchmarks.engine.slow_families import slow_texts
from benchmarks.engine.slow_texts import hunt, prove
from tests.support.data_files import DATA, data_bytes
from tests.support.emulation.device import EmulatedDevice
from vocabularies.builtin import load

SIZE = 20_001
TOKENS = [token for token in load("gpt2").tokens if token]
TEXTS = {text.name: text for text in slow_texts(SIZE, TOKENS)}


def runs_in(data: bytes) -> list[int]:
    """Return the lengths of all runs but the last, which may be cut off."""
    return [len(list(run)) for _, run in itertools.groupby(data)][:-1]


def test_all_have_a_name_of_their_own_the_size_and_whole_characters():
    assert len(TEXTS) == len(list(slow_texts(SIZE, TOKENS))) > 250
    for text in TEXTS.values():
        assert SIZE - 3 <= len(text.data) <= SIZE
        assert text.offsets[-1] == len(text.data)
        text.data.tobytes().decode()


def test_runs_have_the_lengths_that_their_names_say():
    for name, text in TEXTS.items():
        found = re.fullmatch(r"runs of (\d+)(?: to (\d+))? (marks|white|letters|digits|any)", name)
        if found:
            low, high = int(found[1]), int(found[2] or found[1])
            lengths = runs_in(text.data.tobytes())
            assert low <= min(lengths, default=low) <= max(lengths, default=high) <= high, name


def test_periods_repeat_and_tokens_are_tokens():
    for name, text in TEXTS.items():
        if found := re.match(r"period of (\d+) ", name):
            period = int(found[1])
            assert (text.data[period:] == text.data[:-period]).all(), name
    text = TEXTS["longest tokens of marks, 10 times each"].data.tobytes()
    assert any(text.startswith(token * 10) for token in TOKENS if len(token) > 8)
    assert len(TEXTS["rows of 3"].offsets) == SIZE // 3 + 1


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    data_bytes("vocab/llm_encodings.json")  # Skips without the data folder.
    return read_published("gpt2", DATA, tmp_path_factory.mktemp("scratch"))


def test_a_hunt_gives_a_row_of_each_text(gpt2):
    ways = GpuWays(EmulatedDevice(), 1 << 28)
    rows = hunt(ways, gpt2, 9000, ["runs of 500 letters", "rows of 16"])
    ways.engine.close()
    assert [row["text"] for row in rows] == ["runs of 500 letters", "rows of 16"]
    assert rows[0]["counters"]["whole"] > 0
    assert rows[0]["kernels_us"]
    assert rows[1]["counters"]["pieces"] == 0


def test_other_ids_end_it(gpt2):
    other = replace(gpt2, vocabulary=load("cl100k_base"))
    ways = GpuWays(EmulatedDevice(), 1 << 28)
    text = dataclasses.replace(TEXTS["contractions"], data=np.frombuffer(b"unzipped", np.uint8))
    text = dataclasses.replace(text, offsets=np.array([0, 8], np.int64))
    prove(ways, gpt2, text)
    with pytest.raises(SystemExit, match="tiktoken has other ids for contractions"):
        prove(ways, other, text)
    ways.engine.close()
