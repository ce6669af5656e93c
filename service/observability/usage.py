"""Counts answered requests by route, by vocabulary and by the key of the client.

There may be many vocabularies and keys. Only the most used ones are counted by name, and all others
together as OTHER. So the number of series is bounded, and a name without requests has none.

Counting a request is one look-up by all of its labels; sums are made when /metrics is read.
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
        durations: the seconds that they took.
        num_bytes: the size of their work items in the queue.
    """

    durations: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    num_bytes: int = 0

    @property
    def num_requests(self) -> int:
        """Their number."""
        return sum(self.durations.counts)

    def __iadd__(self, other: Answers) -> Answers:
        self.durations += other.durations
        self.num_bytes += other.num_bytes
        return self


class Labels(NamedTuple):
    """The labels of an answered request; the key and the vocabulary are "" if it has none."""

    route: str
    status: int
    key: str
    vocabulary: str


class MostUsed:
    """The most used names of one kind.

    At first the names that come first are the most used ones. Later a name replaces the least used
    of them if it had MORE_USED times as many requests since the last choice.

    Args:
        limit: the most names.

    Attributes:
        names: the most used names.
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
        """Choose the most used names anew; return those that are replaced.

        Args:
            requests: the number of requests so far of each of the most used names.
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
        max_names: the most vocabularies, and the most keys, that are counted by name.

    Attributes:
        keys, vocabularies: the most used ones.
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
        """Find the counts of a request whose names are new, or not among the most used ones."""
        if perf_counter() - self._chosen_at > PERIOD_S:
            self.choose()
        labels = names._replace(
            key=self.keys.label(names.key), vocabulary=self.vocabularies.label(names.vocabulary)
        )
        return self._answers.setdefault(labels, Answers())

    def count_gone(self, key: str) -> None:
        """Count a request whose client left before the answer."""
        if key:
            self._gone[self.keys.label(key)] += 1

    def choose(self) -> None:
        """Choose the most used names anew; requests of replaced ones count as without a name."""
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
        """Return the answers by their labels; other threads may go on counting."""
        return [(Labels(*labels), answers) for labels, answers in list(self._answers.items())]

    def gone(self) -> dict[str, int]:
        """Return the number of clients that left, by key."""
        return dict(self._gone)
