"""Waiting for what happens and never for how long it should take, on an event loop and off it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["GIVEN_UP_S", "run", "until", "wait_until"]

GIVEN_UP_S = 300.0  # More than anything here takes on the slowest machine; only a fault gets there.
POLL_S = 0.005
T = TypeVar("T")


def run(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What the scenario returns.

    Raises:
        TimeoutError: it has not ended after `GIVEN_UP_S`.
    """
    return asyncio.run(asyncio.wait_for(scenario(), GIVEN_UP_S))


async def until(condition: Callable[[], object]) -> None:
    """Return when the condition holds; `run` ends a wait for what never happens."""
    while not condition():
        await asyncio.sleep(POLL_S)


def wait_until(condition: Callable[[], object], what: str = "what it waits for") -> None:
    """Return when the condition holds, where there is no loop.

    Raises:
        AssertionError: it does not hold after `GIVEN_UP_S`.
    """
    deadline_s = time.monotonic() + GIVEN_UP_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} has not happened"
        time.sleep(POLL_S)
