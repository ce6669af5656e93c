"""Numbers the changes of vocabulary names, so that other processes can follow them."""

from __future__ import annotations

import threading
from collections import deque
from itertools import takewhile
from typing import NamedTuple

KEPT_CHANGES = 1024


class _Change(NamedTuple):
    """A change of the vocabulary that a name refers to."""

    number: int
    name: str


class Changes:
    """The most recent changes of names, numbered consecutively; may be used from any thread.

    Attributes:
        number: the number of the last change; 0 before the first one.
    """

    def __init__(self) -> None:
        self.number = 0
        self._changes: deque[_Change] = deque(maxlen=KEPT_CHANGES)
        self._noting = threading.Lock()

    def note(self, *names: str) -> None:
        """Record that names have changed.

        Call it after the change: a reader that sees the number then also sees the change.
        """
        with self._noting:
            for name in names:
                self._changes.append(_Change(self.number + 1, name))
                self.number += 1

    def names_since(self, number: int) -> list[str] | None:
        """Return the names that changed after the change `number`, each once.

        The result is None if some changes after `number` are no longer stored.
        """
        with self._noting:
            if self.number - number > len(self._changes):
                return None
            later = takewhile(lambda change: change.number > number, reversed(self._changes))
            return list(dict.fromkeys(change.name for change in later))[::-1]
