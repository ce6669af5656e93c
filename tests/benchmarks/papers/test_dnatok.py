"""DNATok's parts for torch's device run on a CPU, and compare ids before they time."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers import dnatok, dnatok_scenarios
from benchmarks.papers.session import Differs, Session
from service.engines.cpu.engine import CpuEngine
from tests.support.torch_or_skip import torch_or_skip

torch = torch_or_skip()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """Make a session with small shapes and models whose device is the CPU."""
    from benchmarks.papers import dnatok_models

    monkeypatch.setattr(dnatok, "DEVICE", "cpu")
    monkeypatch.setattr(dnatok, "CONFIGURATIONS", {"standard": (4, 30)})
    monkeypatch.setattr(dnatok, "BATCHES", (3,))
    monkeypatch.setattr(dnatok, "LENGTHS", ())
    monkeypatch.setattr(dnatok_scenarios, "SCENARIOS", {"short": (2, 40)})
    for name, size in {"WIDTH": 16, "HEADS": 2, "LAYERS": 1}.items():
        monkeypatch.setattr(dnatok_models, name, size)
    gpu: Any = types.SimpleNamespace(engine=CpuEngine())
    return Session(Path(), gpu, slice_s=0.0, log=lambda _: None)


@pytest.mark.slow
def test_copies_and_streams_are_timed(session: Session) -> None:
    copies = [*dnatok.transfer_rows(session)]
    assert {row["way"] for row in copies} >= {"HF native", "DNATok staging i32"}
    streams = [*dnatok.stream_rows(session)]
    assert {row["way"] for row in streams} == {*dnatok.STREAMS}


def test_a_path_with_other_ids_is_not_timed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = dnatok._layer().__class__.embed_from_strings

    def wrong(self: Any, sequences: Any, path: Any = "auto") -> Any:
        for part in embed(self, sequences, path):
            part.ids[0, 0] += 1
            yield part

    monkeypatch.setattr(dnatok._layer().__class__, "embed_from_strings", wrong)
    with pytest.raises(Differs, match="other ids"):
        [*dnatok.stream_rows(session)]


@pytest.mark.slow
def test_every_model_has_a_scenario_beside_its_baselines(session: Session) -> None:
    rows = [*dnatok_scenarios.scenario_rows(session)]
    assert {row["model"] for row in rows} == {*dnatok_scenarios.MODELS}
    for model in dnatok_scenarios.MODELS:
        ways = {row["way"] for row in rows if row["model"] == model}
        assert {"warptok, ids", "warptok, model", "model alone"} < ways
