"""The benchmark of training on a GPU runs on an emulation and compares before timing."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.support.corpora import numbers
from benchmarks.training import trainers_gpu
from benchmarks.training.corpora import copies
from gpu.training.merger import DeviceMerger
from tests.support.emulation.device import EmulatedDevice
from vocabularies.sequences.corpus import Corpus

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the kernels")
PLAN = trainers_gpu.Plan(40, 50, 6, 2_000, (500, 1_500), 500, 1)


def sequences(number: int, lengths: list[int]) -> Corpus:
    drawn = np.random.default_rng(number).integers(0, 4, sum(lengths))
    return Corpus(np.frombuffer(b"ACGT", np.uint8)[drawn], np.cumsum([0, *lengths]))


@pytest.fixture
def corpora():
    names = {"matures": [22] * 20, "genomes": [700, 300], "lambda": [500]}
    return {name: sequences(i, lengths) for i, (name, lengths) in enumerate(names.items())}


@pytest.fixture(autouse=True)
def _short_copies(monkeypatch):
    monkeypatch.setattr(trainers_gpu, "COPY_BYTES", 1 << 16)


def test_every_case_is_proved_and_every_size_timed(corpora):
    document = trainers_gpu.run(EmulatedDevice(), corpora, PLAN)
    assert len(document["proved"]) == 14
    assert all(row["equal"] for row in document["proved"])
    assert {row.get("ending") for row in document["proved"]} >= {"size", "no pair"}
    assert [(row["bases"], row["motifs"]) for row in document["growth"]] == [
        (500, 0),
        (500, 6),
        (1_500, 0),
    ]
    for row in document["growth"]:
        parts = sum(row[name]["median_s"] for name in ("host", "copied", "merged"))
        assert parts == pytest.approx(row["wall"]["median_s"])
        assert row["device_bytes"] > 4 * row["bases"]
        each = row["moved_bytes"] / row["merges"] / row["bases"]
        assert 1 < each / (6 if row["motifs"] else 2) < 2


def test_nothing_is_timed_where_a_merge_differs(corpora, monkeypatch):
    best = DeviceMerger.best

    def wrong(self):
        merge = best(self)
        return None if merge is None else merge._replace(frequency=merge.frequency + 1)

    monkeypatch.setattr(DeviceMerger, "best", wrong)
    with pytest.raises(SystemExit, match="matures: merge 0 is"):
        trainers_gpu.run(EmulatedDevice(), corpora, replace(PLAN, bases=()))


def test_copies_are_the_same_however_many_are_made_at_once(corpora, monkeypatch):
    genome = corpora["genomes"]
    whole = copies(genome, 5_000)
    assert (whole.data[:1_000] == genome.data).all()
    assert 0.05 < (whole.data != np.resize(genome.data, 5_000)).mean() < 0.1
    monkeypatch.setattr("benchmarks.training.corpora.AT_ONCE", 300)
    assert copies(genome, 5_000).digest == whole.digest
    assert (numbers(7, 5, 3) == numbers(7, 8)[3:]).all()
