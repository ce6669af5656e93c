"""Lets the supervisor see that the event loop of each child runs, and end a child that hangs.

    child       event loop: UP, then a line a second ──► standard output
    supervisor  no line for MAX_SILENCE_S ──► SIGABRT, which logs the stacks of threads ──► SIGKILL

Only seconds in which the supervisor itself waits count, so that a machine that was suspended, or a
clock that was set, ends no child.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import Process

logger = logging.getLogger(__name__)
UP = "up"  # A child prints this word, and perhaps ports, when it listens.
STDOUT = 1
BEAT_S = 1.0
WAIT_S = 5.0
WARN_S = 10.0
MAX_SILENCE_S = 120.0
"""Loading a vocabulary of a million pieces holds Python's lock for about 8 s."""
ABORT_S = 5.0  # For writing the stacks.


def report_up(*ports: int) -> None:
    """Report that this child listens on these ports, and from now on that its loop runs."""
    print(UP, *ports, flush=True)
    os.set_blocking(STDOUT, False)
    _beat(asyncio.get_running_loop())


def _beat(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(OSError):  # The supervisor stands still, or has ended.
        os.write(STDOUT, b"\n")
    loop.call_later(BEAT_S, _beat, loop)


async def end_if_hanging(name: str, process: Process) -> None:
    """Read the lines of a child until it ends; end a child that hangs."""
    assert process.stdout is not None
    silence_s = 0.0
    while silence_s < MAX_SILENCE_S:
        try:
            async with asyncio.timeout(WAIT_S):
                if not await process.stdout.read(1 << 16):
                    return
        except TimeoutError:
            silence_s += WAIT_S
            if silence_s - WAIT_S < WARN_S <= silence_s:
                logger.warning("%s hangs: its event loop has not run for %.0f s", name, silence_s)
            continue
        if silence_s >= WARN_S:
            logger.warning("%s does not hang any more", name)
        silence_s = 0.0
    logger.error("%s hangs and is ended: its event loop has not run for %.0f s", name, silence_s)
    for number in (signal.SIGABRT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            process.send_signal(number)
            async with asyncio.timeout(ABORT_S):
                await process.wait()
