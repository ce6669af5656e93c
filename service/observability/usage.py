"""Counts answered requests by route, by vocabulary and by the client's API key.

There may be many vocabularies and keys. Only the most used ones are counted by name, and all others
together as OTHER. So the number of series is bounded, and an unused name has no series.

Counting a request takes one look-up by all of its labels; sums are computed when /metrics is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

from service.observability.histogram import Histogram
from service.observability.metric_definitions import SECONDS

OTHER = "other"
PERIOD_S = 60.0  # The least seconds between two choices of the most used names.
MORE_USED = 2  # How many times as many requests a name needs to replace another one.


@dataclass(slots=True)
class Answers:
    """Answered requests with the same labels.

    Attributes:
        durations: a histogram of the seconds that the requests took.
        num_bytes: the total size of their work items in the queue.
    """

    durations: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    num_bytes: int = 0

    @property
    def num_requests(self) -> int:
        """The number of these requests."""
        return sum(self.durations.counts)

    def __iadd__(self, other: Answers) -> Answers:
        self.durations += other.durations
        self.num_bytes += other.num_bytes
        return self


class Labels(NamedTuple):
    """The labels of an answered request; "" for a missing key or vocabulary."""

    route: str
    status: int
    key: str
    vocabulary: str


class MostUsed:
    """The most used names of one kind.

    The first names fill the list. Later a name replaces the least used one in the list if it had
    MORE_USED times as many requests since the last choice.

    Args:
        limit: the largest number of names.

    Attributes:
        names: the currently listed names.
    """

    def __init__(self, limit: int) -> None:
        self.names: set[str] = set()
        self._limit = limit
        self._others: Counter[str] = Counter()  # Requests since the last choice.
        self._before: Mapping[str, int] = {}  # Requests of the most used names until that.

    def label(self, name: str) -> str:
        """Return the label for a request of a name: the name itself, or OTHER."""
        if not name or name in self.names:
            return name
        if len(self.names) < self._limit:
            self.names.add(name)
            return name
        self._others[name] += 1
        return OTHER

    def choose(self, requests: Mapping[str, int]) -> set[str]:
        """Choose the most used names again; return the names that were replaced.

        Args:
            requests: the total number of requests of each listed name.
        """
        recent = {name: requests.get(name, 0) - self._before.get(name, 0) for name in self.names}
        for other, number in self._others.most_common(self._limit):
            least = min(recent, key=recent.__getitem__)
            if number < MORE_USED * recent[least]:
                break
            del recent[least]
            recent[other] = number
        replaced = self.names - recent.keys()
        self.names = set(recent)
        self._others.clear()
        self._before = requests
        return replaced


class Usage:
    """The answered requests of one process.

    Args:
        max_names: how many vocabularies, and how many keys, are counted by name.

    Attributes:
        keys, vocabularies: the most used keys and vocabularies.
    """

    def __init__(self, max_names: int) -> None:
        self.keys = MostUsed(max_names)
        self.vocabularies = MostUsed(max_names)
        self._answers: dict[tuple[str, int, str, str], Answers] = {}  # By Labels.
        self._gone: Counter[str] = Counter()
        self._chosen_at = perf_counter()

    def count(
        self, route: str, status: int, seconds: float, num_bytes: int, key: str, vocabulary: str
    ) -> None:
        """Count an answered request."""
        # A plain tuple, and no other calls: this is in the path of every small request.
        answers = self._answers.get((route, status, key, vocabulary))
        if answers is None:
            answers = self._find(Labels(route, status, key, vocabulary))
        durations = answers.durations
        durations.counts[bisect_left(SECONDS, seconds)] += 1
        durations.total += seconds
        answers.num_bytes += num_bytes

    def _find(self, names: Labels) -> Answers:
        """Return the counts for a request whose names are new, or not among the most used ones."""
        if perf_counter() - self._chosen_at > PERIOD_S:
            self.choose()
        labels = names._replace(
            key=self.keys.label(names.key), vocabulary=self.vocabularies.label(names.vocabulary)
        )
        return self._answers.setdefault(labels, Answers())

    def count_gone(self, key: str) -> None:
        """Count a request whose client disconnected before the answer."""
        if key:
            self._gone[self.keys.label(key)] += 1

    def choose(self) -> None:
        """Choose the most used names again; requests of replaced names lose their name."""
        by_key: Counter[str] = Counter()
        by_vocabulary: Counter[str] = Counter()
        for labels, answers in self.items():
            by_key[labels.key] += answers.num_requests
            by_vocabulary[labels.vocabulary] += answers.num_requests
        keys, vocabularies = self.keys.choose(by_key), self.vocabularies.choose(by_vocabulary)
        for labels, answers in self.items():
            kept = labels._replace(
                key="" if labels.key in keys else labels.key,
                vocabulary="" if labels.vocabulary in vocabularies else labels.vocabulary,
            )
            if kept != labels:
                del self._answers[labels]
                answers += self._answers.get(kept, Answers())
                self._answers[kept] = answers
        for key in keys:
            self._gone.pop(key, None)
        self._chosen_at = perf_counter()

    def items(self) -> list[tuple[Labels, Answers]]:
        """Return the answers by their labels; other threads may count meanwhile."""
        return [(Labels(*labels), answers) for labels, answers in list(self._answers.items())]

    def gone(self) -> dict[str, int]:
        """Return the number of clients that disconnected before the answer, by key."""
        return dict(self._gone)
