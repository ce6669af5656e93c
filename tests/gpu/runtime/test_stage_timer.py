"""Where the time of a batch goes: one in so many is timed, and the ids are the same."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.engine import GpuEngine
from gpu.kernels.catalog import KERNELS
from gpu.runtime.stage_timer import STAGES, StageTimes
from tests.support.each_device import limit_fused
from tests.support.emulation.device import EmulatedDevice, EmulatedStream
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load
from vocabularies.reference import tokenizer

GPT2 = load("gpt2")
TEXT = "Hello, world! It's 2024, naïve café. " * 20


def engine(every: int) -> GpuEngine:
    made = GpuEngine(EmulatedDevice(), 1 << 28)
    made.load(GPT2)
    made.stage_times.time_every(every)
    return made


def ids_of(made: GpuEngine, text: str) -> list[int]:
    return made.encode(GPT2, Batch([text])).ids.tolist()


def expected(text: str) -> list[int]:
    return tokenizer.encode(GPT2, text).ids


def test_every_kernel_has_a_stage():
    assert {kernel.stage for kernel in KERNELS.values()} <= set(STAGES)
    assert [KERNELS[name].stage for name in STAGES[2:5]] == list(STAGES[2:5])


@pytest.mark.parametrize("way", ["fused", "small", "chunks"])
def test_one_batch_in_so_many_is_timed_and_has_the_same_ids(monkeypatch, way):
    made = engine(every=3)
    wanted = {"copy_to_device", "pretokenize", "merge", "compact", "copy_to_host", "stage"}
    if way == "fused":
        wanted = {"fused"}
    else:
        limit_fused(made, 0)
    if way == "chunks":
        monkeypatch.setattr(made.resources.workspaces, "is_small", lambda *size: False)
    marks = []
    mark = EmulatedStream.mark
    monkeypatch.setattr(EmulatedStream, "mark", lambda s: marks.append(1) or mark(s))
    for number in range(1, 7):
        marks.clear()
        assert ids_of(made, TEXT) == expected(TEXT)
        assert bool(marks) == (number % 3 == 0)
    taken = made.stage_times.take()
    assert sorted(stage for stage, _ in taken) == sorted(2 * [*wanted])
    assert all(0 <= seconds < 60 for _, seconds in taken)
    assert made.stage_times.take() == []


def test_a_batch_that_fails_while_it_is_timed_leaves_no_clock_behind(monkeypatch):
    made = engine(every=1)
    limit_fused(made, 0)
    launch = EmulatedStream.launch

    def broken(stream: EmulatedStream, kernel: str, blocks: int, job: int) -> None:
        if kernel == "merge":
            raise RuntimeError("told to fail")
        launch(stream, kernel, blocks, job)

    for is_small in (True, False):
        monkeypatch.setattr(
            made.resources.workspaces, "is_small", lambda *size, small=is_small: small
        )
        monkeypatch.setattr(EmulatedStream, "launch", broken)
        with pytest.raises(RuntimeError, match="told to fail"):
            ids_of(made, TEXT)
        monkeypatch.setattr(EmulatedStream, "launch", launch)
        made.stage_times.time_every(1 << 40)
        assert ids_of(made, TEXT) == expected(TEXT)
        made.stage_times.time_every(1)
        free = [
            each for shelf in made.resources.workspaces._shelves.values() for each in shelf.free
        ]
        assert free and all(workspace.clock is None for workspace in free)
    assert made.stage_times.take() == []


def test_stages_of_chunks_are_those_of_their_own_workspace(monkeypatch):
    made = engine(every=1)
    monkeypatch.setattr(made.resources.workspaces, "is_small", lambda *size: False)
    made.pipeline.chunk_bytes = 256
    texts = [TEXT, "", "x" * 300, TEXT[::-1]]
    encoded = made.encode(GPT2, Batch(texts))
    whole = np.concatenate([expected(text) for text in texts if text])
    assert encoded.ids.tolist() == whole.tolist()
    counts = {stage: 0 for stage in STAGES}
    for stage, _ in made.stage_times.take():
        counts[stage] += 1
    assert counts["fused"] == 0
    assert len({counts[stage] for stage in STAGES if stage != "fused"}) == 1
    assert counts["merge"] > 1


def test_times_that_are_not_read_are_bounded():
    times = StageTimes(1)
    for _ in range(2000):
        clock = times.clock(EmulatedStream(EmulatedDevice()))
        clock.enter("merge")
        clock.enter("compact")
        clock.add("stage", 0.1)
        clock.leave()
        clock.leave()
        times.add(clock)
    assert len(times.take()) == 4096
