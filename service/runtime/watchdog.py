"""Ends a process whose event loop hangs, and leaves the stacks of its threads in the log.

The event loop sets a timer anew every few seconds. The timer is a thread of C, which waits for no
lock of Python. Whatever has started the process starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")
HANG_S = 120.0
"""Loading a vocabulary of a million pieces holds Python's lock for about 8 s."""
PERIOD_S = 5.0


async def run_watched(main: Coroutine[None, None, Result]) -> Result:
    """Await `main`; end this process with code 1 if the event loop hangs for HANG_S meanwhile.

    A process that was started without stderr is not watched.
    """
    watching = asyncio.create_task(_set_timer_anew())
    try:
        return await main
    finally:
        watching.cancel()
        faulthandler.cancel_dump_traceback_later()


async def _set_timer_anew() -> None:
    while True:
        with contextlib.suppress(RuntimeError):  # There is no stderr, or no thread just now.
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        await asyncio.sleep(PERIOD_S)
