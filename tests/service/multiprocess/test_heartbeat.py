"""A child reports that its event loop runs, and one that hangs is ended with its stacks logged."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process

import pytest

from service.multiprocess import heartbeat
from service.multiprocess.heartbeat import end_if_hanging
from tests.support.waiting import run

BEATS = """
import asyncio, faulthandler, sys, time
from service.multiprocess import heartbeat
faulthandler.enable()
heartbeat.BEAT_S = 0.02
async def scenario():
    heartbeat.report_up(7, 8)
    await asyncio.sleep(float(sys.argv[1]))
    time.sleep(float(sys.argv[2]))
asyncio.run(scenario())
"""


PIPE_BYTES = 4096

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(heartbeat, "WAIT_S", 0.25)
    monkeypatch.setattr(heartbeat, "WARN_S", 1.0)
    monkeypatch.setattr(heartbeat, "MAX_SILENCE_S", 3.0)


async def start(runs_s: float, hangs_s: float) -> Process:
    """A child whose loop runs, then hangs, for these seconds."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", BEATS, str(runs_s), str(hangs_s), stdout=PIPE, stderr=PIPE
    )


async def watch(runs_s: float, hangs_s: float, number: int | None = None) -> tuple[int, str]:
    """Watch such a child, send it a signal once it is up; return its exit code and its stderr."""
    process = await start(runs_s, hangs_s)
    assert process.stdout is not None and process.stderr is not None
    assert await process.stdout.readline() == b"up 7 8\n"
    if number is not None:
        process.send_signal(number)
    await end_if_hanging("engine", process)
    code = await process.wait()
    return code, (await process.stderr.read()).decode()


def test_a_child_whose_loop_runs_is_left_alone():
    assert run(lambda: watch(4, 0)) == (0, "")


def test_a_child_that_hangs_for_a_while_is_left_alone(caplog):
    code, _ = run(lambda: watch(0.1, 2))
    assert code == 0
    assert "engine hangs: its event loop has not run for 1 s" in caplog.text


def test_a_child_that_hangs_is_ended_and_its_stacks_are_logged(caplog):
    code, said = run(lambda: watch(0.1, 1000))
    assert code == -signal.SIGABRT
    assert "in scenario" in said
    assert "engine hangs and is ended: its event loop has not run for 3 s" in caplog.text


def test_a_child_that_stands_still_is_killed(monkeypatch):
    monkeypatch.setattr(heartbeat, "ABORT_S", 0.25)
    code, _ = run(lambda: watch(1000, 0, signal.SIGSTOP))
    assert code == -signal.SIGKILL


def test_the_time_in_which_a_child_hangs_counts_anew(caplog):
    async def scenario() -> int:
        process = await start(8, 0)
        watching = asyncio.create_task(end_if_hanging("engine", process))
        for _ in range(2):
            await asyncio.sleep(1)
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2)
            process.send_signal(signal.SIGCONT)
        await watching
        return await process.wait()

    assert run(scenario) == 0
    assert caplog.text.count("engine does not hang any more") == 2


def test_a_child_goes_on_when_nobody_reads():
    often = BEATS.replace("0.02", "0")
    command = [sys.executable, "-c", often, "1", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pipesize=PIPE_BYTES) as process:
        assert process.wait(60) == 0  # A blocking write would wait for ever once the pipe is full.
        assert process.stdout is not None
        assert len(process.stdout.read()) == PIPE_BYTES
