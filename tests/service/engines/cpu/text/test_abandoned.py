"""Long texts that nobody waits for any more are abandoned within the C++ extension."""

from __future__ import annotations

import numpy as np
import pytest

from service.engines.base import Abandoned
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.text import encoder as text_encoder
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

pytestmark = pytest.mark.skipif(text_encoder.native is None, reason="the extension is not built")
ONE_PRETOKEN = "a" * 4_000_000  # Takes a second.


def random_words() -> str:
    """Make words of which hardly any repeats, so that nearly all are merged: most of a second."""
    letters = np.random.default_rng(36).integers(97, 123, 24 << 20, np.uint8)
    letters[::16] = ord(" ")
    return letters.tobytes().decode()


@pytest.fixture(scope="module")
def engine() -> CpuEngine:
    engine = CpuEngine()
    engine.load(load("gpt2"))
    return engine


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("rows", [[ONE_PRETOKEN], [random_words()], ["a", ONE_PRETOKEN, "b"]])
def test_a_long_text_is_abandoned(engine: CpuEngine, num_threads: int, rows: list[str]) -> None:
    [loaded] = engine._loaded.values()
    loaded.chosen.encoder.num_threads = num_threads  # type: ignore[attr-defined]
    answers: list[bool] = []
    batch = Batch(rows)
    batch.should_continue = lambda: bool(answers.append(True) or len(answers) < 2)
    with pytest.raises(Abandoned):
        engine.encode(load("gpt2"), batch)
    assert len(answers) == 2
    assert engine.encode(load("gpt2"), Batch(["a b"])).ids.tolist() == [64, 275]


def test_an_error_of_the_question_is_raised(engine: CpuEngine) -> None:
    def fail() -> bool:
        raise KeyError("36")

    batch = Batch([ONE_PRETOKEN])
    batch.should_continue = fail
    with pytest.raises(KeyError, match="36"):
        engine.encode(load("gpt2"), batch)
