"""Decides which chat gets the next free template process, fairly for keys and vocabularies.

The seconds of the processes are shared between the keys that have chats waiting, and those of a key
between its vocabularies, by virtual times [1]: each key and each vocabulary of a key has one, which
grows by the expected seconds of each of its chats, and the chat that would end first in it is next.
So a quick chat overtakes slow ones, however many of them wait, and slow ones get their share.

    [1] P. Goyal, H. Vin, H. Cheng: Start-time fair queueing. 1996.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

from service.apis.dialects.templates.memory import Answer, Request

SLOW_S = 0.1  # Chats that are expected to take longer leave one process to the others.
MAX_MEASURED = 4_096  # Vocabularies; the least recently measured ones are forgotten.
MAX_REMEMBERED = 1_024  # Keys, and vocabularies of a key, without chats that wait.


class Flow(NamedTuple):
    """The chats of one key for one vocabulary, which are rendered in the order of their arrival."""

    client: str
    vocabulary: str


@dataclass(eq=False, slots=True)
class Chat:
    """A chat that waits for a process, or is being rendered.

    Attributes:
        flow: whose chat it is.
        request: what the process gets.
        result: is completed with the answer of the process.
        submitted: the perf_counter time at which it began to wait.
    """

    flow: Flow
    request: Request
    result: asyncio.Future[Answer]
    submitted: float = field(default_factory=perf_counter)


class Costs:
    """The expected seconds of a vocabulary's chats: moving averages of those measured."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def expected_s(self, vocabulary: str) -> float:
        """Return the expected seconds; a vocabulary that was not measured counts as slow."""
        return self._seconds.get(vocabulary, 2 * SLOW_S)

    def learn(self, vocabulary: str, seconds: float) -> None:
        """Add the measured seconds of a chat."""
        before = self._seconds.pop(vocabulary, seconds)
        self._seconds[vocabulary] = 0.75 * before + 0.25 * seconds
        if len(self._seconds) > MAX_MEASURED:
            del self._seconds[next(iter(self._seconds))]


class VirtualTimes:
    """The virtual times of keys, or of the vocabularies of one key.

    Attributes:
        starts: the virtual time at which the next chat of each begins, if it has one that waits.
    """

    def __init__(self) -> None:
        self.starts: dict[str, float] = {}
        self._now = 0.0
        self._ends: dict[str, float] = {}

    def begin_wait(self, name: str) -> None:
        """Note that a chat of `name` waits."""
        if name not in self.starts:
            self.starts[name] = max(self._now, self._ends.get(name, 0.0))

    def serve(self, name: str, seconds: float, has_more: bool) -> None:
        """Note that the next chat of `name` gets a process, and whether more of its chats wait."""
        start = self.starts.pop(name)
        self._now = max(self._now, start)
        self._ends[name] = end = start + seconds
        if has_more:
            self.starts[name] = end
        if len(self._ends) > MAX_REMEMBERED:
            self._ends = {each: at for each, at in self._ends.items() if at > self._now}

    def end_wait(self, name: str) -> None:
        """Note that no chat of `name` waits any more, and none got a process."""
        del self.starts[name]


class ChatQueue:
    """The chats that wait for a process.

    Attributes:
        costs: the expected seconds of the chats.
    """

    def __init__(self) -> None:
        self.costs = Costs()
        self._waiting: dict[Flow, deque[Chat]] = {}
        self._clients = VirtualTimes()
        self._vocabularies: dict[str, VirtualTimes] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def count(self, flow: Flow) -> int:
        """Return the number of chats of a flow."""
        return len(self._waiting.get(flow, ()))

    def is_slow(self, chat: Chat) -> bool:
        """Return whether a chat is expected to take long."""
        return self.costs.expected_s(chat.flow.vocabulary) > SLOW_S

    def add(self, chat: Chat) -> None:
        """Put a chat behind the others of its flow."""
        client, vocabulary = chat.flow
        self._waiting.setdefault(chat.flow, deque()).append(chat)
        self._clients.begin_wait(client)
        self._vocabularies.setdefault(client, VirtualTimes()).begin_wait(vocabulary)

    def take(self, only_quick: bool) -> Chat | None:
        """Take the chat that is next; None: none waits, or only slow ones if `only_quick`."""
        flow = self._find_next(only_quick)
        if flow is None:
            return None
        chats = self._waiting[flow]
        chat = chats.popleft()
        seconds = self.costs.expected_s(flow.vocabulary)
        self._vocabularies[flow.client].serve(flow.vocabulary, seconds, bool(chats))
        if not chats:
            del self._waiting[flow]
        self._clients.serve(flow.client, seconds, bool(self._vocabularies[flow.client].starts))
        self._forget(flow.client)
        return chat

    def _find_next(self, only_quick: bool) -> Flow | None:
        """Find the flow whose next chat would end first in the virtual times."""
        first: tuple[float, Flow] | None = None
        for client, start in self._clients.starts.items():
            ends = [
                (begin + seconds, seconds, vocabulary)
                for vocabulary, begin in self._vocabularies[client].starts.items()
                if (seconds := self.costs.expected_s(vocabulary)) <= SLOW_S or not only_quick
            ]
            if not ends:
                continue
            _, seconds, vocabulary = min(ends)
            if first is None or start + seconds < first[0]:
                first = start + seconds, Flow(client, vocabulary)
        return None if first is None else first[1]

    def remove(self, chat: Chat) -> None:
        """Remove a chat that nobody waits for any more, if it has not been taken."""
        flow = chat.flow
        chats = self._waiting.get(flow)
        if chats is None or chat not in chats:
            return
        chats.remove(chat)
        if not chats:
            del self._waiting[flow]
            self._vocabularies[flow.client].end_wait(flow.vocabulary)
            if not self._vocabularies[flow.client].starts:
                self._clients.end_wait(flow.client)
                self._forget(flow.client)

    def _forget(self, client: str) -> None:
        """Forget the vocabularies of a key that has no chats waiting, if there are many keys."""
        if len(self._vocabularies) > MAX_REMEMBERED and not self._vocabularies[client].starts:
            del self._vocabularies[client]
