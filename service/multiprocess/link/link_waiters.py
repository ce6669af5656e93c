"""What waits at both ends of a link: futures, or what acts like one without a turn of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from service.multiprocess.link.frames import Message


class Running(Protocol):
    """An answer that is being made: a future, or something that acts like one."""

    def add_done_callback(self, tell: Callable[[Any], object], /) -> None:
        """Have somebody told when it is over."""

    def cancelled(self) -> bool:
        """Whether nobody wanted it."""

    def exception(self) -> BaseException | None:
        """Why there is none."""

    def result(self) -> Message:
        """The answer."""

    def cancel(self) -> object:
        """Nobody wants it any more."""


class Asking(Protocol):
    """What waits for an answer: a future, or something that acts like one."""

    def done(self) -> bool:
        """Whether there is nothing to wait for any more."""

    def set_result(self, message: Message, /) -> None:
        """The answer is there."""

    def set_exception(self, error: BaseException, /) -> None:
        """There will be no answer."""
