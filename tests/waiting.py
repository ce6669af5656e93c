"""Scenarios on an event loop, which wait for what happens and never for how long it should take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["GIVEN_UP_S", "run", "until"]

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
