"""Numbers the changes of vocabularies' names, so that other processes can follow them."""

from __future__ import annotations

import threading
from collections import deque
from itertools import takewhile
from typing import NamedTuple

KEPT_CHANGES = 1024


class _Change(NamedTuple):
    """A change of the vocabulary that a name stands for."""

    number: int
    name: str


class Changes:
    """The last changes of names, from any thread; each has the next number.

    Attributes:
        number: the number of the last change; 0: there was none.
    """

    def __init__(self) -> None:
        self.number = 0
        self._changes: deque[_Change] = deque(maxlen=KEPT_CHANGES)
        self._noting = threading.Lock()

    def note(self, *names: str) -> None:
        """Note that names have changed; call it after the change, so that no reader misses it."""
        with self._noting:
            for name in names:
                self._changes.append(_Change(self.number + 1, name))
                self.number += 1

    def names_since(self, number: int) -> list[str] | None:
        """List the names that have changed since a change; None: it is too old to tell."""
        with self._noting:
            if self.number - number > len(self._changes):
                return None
            later = takewhile(lambda change: change.number > number, reversed(self._changes))
            return list(dict.fromkeys(change.name for change in later))[::-1]
