"""The benchmark of long periods: vocabularies have the named merges, and a wrong id ends it."""

from __future__ import annotations

import pytest

from benchmarks.engine import long_periods
from benchmarks.engine.long_periods import PERIODS, of_halves, of_letters, run, vocabulary_of
from tests.support.emulation.device import EmulatedDevice
from vocabularies.reference.tokenizer import encode

UNIT = b"abcdefgh,ijk"


@pytest.mark.parametrize("make", [of_halves, of_letters])
def test_merges_give_the_period_in_order(make):
    made = set(UNIT[i : i + 1] for i in range(len(UNIT)))
    for left, right in make(UNIT):
        assert {left, right} <= made
        made.add(left + right)
    assert UNIT in made


@pytest.mark.parametrize("way", ["halves", "letters"])
def test_tokenizers_and_the_reference_say_the_same(way):
    vocabulary, reference = vocabulary_of(UNIT, way)
    text = (UNIT * 21 + UNIT[:5]).decode()
    assert reference.encode(text).ids == encode(vocabulary, text).ids
    assert max(map(len, vocabulary.tokens)) == 8 * len(UNIT)


@pytest.mark.slow
def test_rows_are_of_level_2_and_proved(monkeypatch):
    rows = run(EmulatedDevice(), PERIODS[:1], [4000])
    assert [row["counters"]["whole"] for row in rows] == [1, 1]
    assert all(row["num_ids"] < 30 and row["seconds"]["median_s"] > 0 for row in rows)
    monkeypatch.setattr(long_periods, "ids_digest", lambda ids: id(ids))
    with pytest.raises(SystemExit, match="tokenizers has other ids"):
        run(EmulatedDevice(), PERIODS[:1], [400])
