"""Waits for conditions instead of fixed times, on an event loop and without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

GIVEN_UP_S = 300.0  # Far above any wait on the slowest machine, so only a fault reaches it.
POLL_S = 0.005
T = TypeVar("T")


def run(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario and return its result.

    Raises:
        TimeoutError: it has not ended after `GIVEN_UP_S`.
    """
    return asyncio.run(asyncio.wait_for(scenario(), GIVEN_UP_S))


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; `run` limits the time."""
    while not condition():
        await asyncio.sleep(POLL_S)


def wait_until(condition: Callable[[], object], what: str = "what it waits for") -> None:
    """Wait until the condition holds, without an event loop.

    Raises:
        AssertionError: it does not hold after `GIVEN_UP_S`.
    """
    deadline_s = time.monotonic() + GIVEN_UP_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} has not happened"
        time.sleep(POLL_S)
