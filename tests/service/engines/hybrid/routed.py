"""An engine on a fake GPU, the answers that are right, and a clock."""

from __future__ import annotations

import functools

import numpy as np

from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import (
    HybridEngine,
)
from tests.support.fake_engine import byte_vocabulary
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.inputs.nasty_texts import TEXTS
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Encoded, EncodeOptions
from vocabularies.builtin import load

BYTES = byte_vocabulary()
OTHERS = [byte_vocabulary(256 + n) for n in range(1, 4)]
SHORT = [text for text in TEXTS if len(text) < 200]
LARGE = ["many letters " * 9] * 40
CROSSOVER = 1000


SHARED = CpuEngine()


def routed(
    crossover_bytes: int | None = CROSSOVER, cpu: CpuEngine = SHARED, **told: object
) -> tuple[HybridEngine, FakeGpu]:
    """Make an engine that has finished its measurements, on a fake GPU with given attributes."""
    gpu = FakeGpu(SHARED)
    for name, value in told.items():
        setattr(gpu, name, value)
    engine = HybridEngine(cpu, gpu.opened, crossover_bytes)
    engine.settle()
    return engine, gpu


@functools.cache
def right(texts: tuple[str, ...], options: EncodeOptions) -> Encoded:
    return SHARED.encode(load("gpt2"), Batch(list(texts), options=options))


def check(encoded: Encoded, texts: list[str], options: EncodeOptions = DEFAULT_OPTIONS) -> None:
    expected = right(tuple(texts), options)
    assert encoded.ids.tolist() == expected.ids.tolist()
    assert encoded.offsets.tolist() == expected.offsets.tolist()
    assert encoded.errors == expected.errors
    for name in ("spans", "num_tokens"):
        got, wanted = getattr(encoded, name), getattr(expected, name)
        assert (got is None) == (wanted is None)
        assert got is None or got.tolist() == wanted.tolist()


class Clock:
    """A clock that stands still but in the calls of its engines."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def as_long_as(self, seconds):
        """An engine that takes so many seconds for so many bytes."""

        def encode(batch: Batch) -> Encoded:
            self.now += seconds(len(batch.data))
            return Encoded(batch.data.astype(np.int32), batch.offsets)

        return encode


def change_an_id(encoded: Encoded) -> None:
    encoded.ids[-1:] += 1
