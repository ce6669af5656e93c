"""A process whose event loop hangs is ended, with its stacks in the log."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, time
from service.runtime import watchdog
watchdog.HANG_S, watchdog.PERIOD_S = 1.5, 0.05
async def main():
    await asyncio.sleep({runs})
    time.sleep({hangs})
    return 7
assert asyncio.run(watchdog.run_watched(main())) == 7
time.sleep({later})
"""

FAILS_ONCE = """
import asyncio, faulthandler, time
set_timer = faulthandler.dump_traceback_later
def fail_once(*arguments, **options):
    faulthandler.dump_traceback_later = set_timer
    raise RuntimeError("unable to start watchdog thread")
faulthandler.dump_traceback_later = fail_once
"""


def ended(runs: float = 0.0, hangs: float = 0.0, later: float = 0.0) -> tuple[int, str]:
    """Run a process for these seconds, and return its exit code and what it has written."""
    script = SCRIPT.format(runs=runs, hangs=hangs, later=later)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_process_whose_loop_hangs_is_ended_and_its_stacks_are_logged():
    code, said = ended(hangs=1000)
    assert code == 1
    assert "in main" in said


@pytest.mark.slow
def test_a_process_whose_loop_runs_is_left_alone():
    assert ended(runs=3) == (0, "")


@pytest.mark.slow
def test_a_process_that_is_not_watched_any_more_may_hang():
    assert ended(later=3) == (0, "")


def test_a_timer_that_could_not_be_set_is_set_later():
    """As when the system has just allowed no more threads."""
    script = SCRIPT.replace("import asyncio, time", FAILS_ONCE).format(
        runs=0.5, hangs=1000, later=0
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "in main" in done.stderr
