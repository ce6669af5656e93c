"""Decides which chat gets the next free process, and shares time between keys and vocabularies.

The time of the processes is shared fairly between the API keys with waiting chats, and the time of
a key between its vocabularies, by virtual times [1]. Each key, and each vocabulary of a key, has a
virtual time, which advances by the expected seconds of each of its chats. The next chat is the one
that would end first in virtual time. So a quick chat overtakes slow ones, however many wait, and
slow chats still receive their share.

    [1] P. Goyal, H. Vin, H. Cheng: Start-time fair queueing. 1996.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

from service.apis.dialects.templates.memory import Answer, Request

SLOW_S = 0.1  # Chats that are expected to take longer cannot use one of the processes.
MAX_MEASURED = 4_096  # Number of vocabularies; the least recently measured ones are dropped.
MAX_REMEMBERED = 1_024  # Number of keys, and of vocabularies of a key, without waiting chats.


class Flow(NamedTuple):
    """The chats of one key with one vocabulary, which are rendered in order of arrival."""

    client: str
    vocabulary: str


@dataclass(eq=False, slots=True)
class Chat:
    """A chat that waits for a process, or is being rendered.

    Attributes:
        flow: the key and the vocabulary of the chat.
        request: the request to the process.
        result: a future for the answer of the process.
        submitted: the perf_counter time at which the chat began to wait.
        begun: the perf_counter time at which it got a process; 0 while it waits.
    """

    flow: Flow
    request: Request
    result: asyncio.Future[Answer]
    submitted: float = field(default_factory=perf_counter)
    begun: float = 0.0


class Costs:
    """The expected seconds of each vocabulary's chats: moving averages of measured times."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def expected_s(self, vocabulary: str) -> float:
        """Return the expected seconds of a chat; a vocabulary not measured yet counts as slow."""
        return self._seconds.get(vocabulary, 2 * SLOW_S)

    def learn(self, vocabulary: str, seconds: float) -> None:
        """Add the measured seconds of a chat to the average of its vocabulary."""
        before = self._seconds.pop(vocabulary, seconds)
        self._seconds[vocabulary] = 0.75 * before + 0.25 * seconds
        if len(self._seconds) > MAX_MEASURED:
            del self._seconds[next(iter(self._seconds))]


class VirtualTimes:
    """The virtual times of all keys, or of the vocabularies of one key.

    Attributes:
        starts: the virtual time at which the next chat begins, by the name of each key or
            vocabulary with waiting chats.
    """

    def __init__(self) -> None:
        self.starts: dict[str, float] = {}
        self._now = 0.0
        self._ends: dict[str, float] = {}

    def begin_wait(self, name: str) -> None:
        """Record that a chat of `name` waits."""
        if name not in self.starts:
            self.starts[name] = max(self._now, self._ends.get(name, 0.0))

    def serve(self, name: str, seconds: float, has_more: bool) -> None:
        """Record that the next chat of `name` gets a process, and whether more of them wait."""
        start = self.starts.pop(name)
        self._now = max(self._now, start)
        self._ends[name] = end = start + seconds
        if has_more:
            self.starts[name] = end
        if len(self._ends) > MAX_REMEMBERED:
            self._ends = {each: at for each, at in self._ends.items() if at > self._now}

    def end_wait(self, name: str) -> None:
        """Record that no chat of `name` waits any more, although none got a process."""
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
        """Return the number of waiting chats of a flow."""
        return len(self._waiting.get(flow, ()))

    def is_slow(self, chat: Chat) -> bool:
        """Return whether a chat is expected to take longer than SLOW_S."""
        return self.costs.expected_s(chat.flow.vocabulary) > SLOW_S

    def add(self, chat: Chat) -> None:
        """Add a chat after all other chats of its flow."""
        client, vocabulary = chat.flow
        self._waiting.setdefault(chat.flow, deque()).append(chat)
        self._clients.begin_wait(client)
        self._vocabularies.setdefault(client, VirtualTimes()).begin_wait(vocabulary)

    def take(self, only_quick: bool) -> Chat | None:
        """Remove and return the next chat, a quick one if `only_quick`; None if there is none."""
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
        """Return the flow whose next chat would end first in virtual time."""
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
        """Remove a chat for which nobody waits any more, unless it has been taken."""
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
        """Forget the vocabularies of a key without waiting chats, if there are many keys."""
        if len(self._vocabularies) > MAX_REMEMBERED and not self._vocabularies[client].starts:
            del self._vocabularies[client]
