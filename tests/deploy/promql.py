"""Evaluates the part of PromQL that the alert rules use, over complete series.

It replaces promtool where that is not installed; elsewhere a test compares both on the same series.
A series has a value for each minute. Rates are taken between the first and the last value of a
window, without promtool's extrapolation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
TOKEN = re.compile(
    r"\s*(?P<token>[a-z_]+ by|[a-zA-Z_]\w*|\d+(?:\.\d+)?(?:[smhd]\b)?"
    r"|[=><]=?|[*/(),]|\{[^}]*\}|\[[^\]]*\])"
)
MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')
MINUTES = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}


@dataclass(frozen=True)
class Series:
    """A metric with its labels, and its value at each minute."""

    name: str
    labels: Labels
    values: list[float]


def series_of(given: str, values: str) -> Series:
    """Make a series from promtool's notation: ``name{label="x"}``, ``begin+step x times ...``."""
    name, _, labels = given.partition("{")
    pairs = frozenset((label, value) for label, _, value in MATCHER.findall(labels))
    made: list[float] = []
    for part in values.split():
        found = re.fullmatch(r"(-?[\d.]+)(?:([+-][\d.]+))?x(\d+)", part)
        assert found is not None, part
        begin, step, count = float(found[1]), float(found[2] or 0), int(found[3])
        made += [begin + step * i for i in range(count + 1)]
    return Series(name, pairs, made)


def minutes(duration: str) -> float:
    return float(duration[:-1]) * MINUTES[duration[-1]]


class _Reader:
    """Evaluates an expression while it is read."""

    def __init__(self, expression: str, series: list[Series], now: int) -> None:
        self.tokens = [found["token"] for found in TOKEN.finditer(expression)]
        assert "".join(self.tokens).replace(" ", "") == re.sub(r"\s", "", expression)
        self.series, self.now = series, now

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def take(self, wanted: str = "") -> str:
        token = self.tokens.pop(0)
        assert not wanted or token == wanted, f"{token} instead of {wanted}"
        return token

    def comparison(self) -> Vector | float:
        left = self.product()
        if self.peek() in ("==", ">", "<"):
            operator, right = self.take(), self.product()
            keeps: Callable[[float, float], bool] = {
                "==": lambda a, b: a == b,
                ">": lambda a, b: a > b,
                "<": lambda a, b: a < b,
            }[operator]
            assert isinstance(left, dict)
            if isinstance(right, dict):
                return {k: v for k, v in left.items() if k in right and keeps(v, right[k])}
            return {k: v for k, v in left.items() if keeps(v, right)}
        return left

    def product(self) -> Vector | float:
        left = self.value()
        while self.peek() in ("*", "/"):
            operator, right = self.take(), self.value()
            if isinstance(left, float):
                assert operator == "*" and isinstance(right, dict)
                left = {labels: left * value for labels, value in right.items()}
            elif isinstance(right, dict):
                assert operator == "/"
                left = {k: v / right[k] for k, v in left.items() if right.get(k)}
            else:
                raise AssertionError("a vector by a number is not used")
        return left

    def value(self) -> Vector | float:
        token = self.take()
        if re.fullmatch(r"\d+(\.\d+)?", token):
            return float(token)
        if token.endswith(" by"):
            return self.aggregate(token.removesuffix(" by"))
        if token in ("rate", "changes"):
            self.take("(")
            selected = self.selector(self.take(), token)
            self.take(")")
            return selected
        if token == "histogram_quantile":
            return self.quantile()
        return self.selector(token, "")

    def aggregate(self, kind: str) -> Vector:
        self.take("(")
        by = set()
        while (token := self.take()) != ")":
            by |= {token} - {","}
        self.take("(")
        inner = self.comparison()
        self.take(")")
        assert isinstance(inner, dict)
        groups: defaultdict[Labels, list[float]] = defaultdict(list)
        for labels, value in inner.items():
            groups[frozenset(pair for pair in labels if pair[0] in by)].append(value)
        function = {"sum": sum, "max": max, "min": min}[kind]
        return {labels: float(function(values)) for labels, values in groups.items()}

    def quantile(self) -> Vector:
        self.take("(")
        wanted = float(self.take())
        self.take(",")
        inner = self.value()
        self.take(")")
        assert isinstance(inner, dict)
        groups: defaultdict[Labels, list[tuple[float, float]]] = defaultdict(list)
        for labels, value in inner.items():
            bound = float(dict(labels)["le"].replace("+Inf", "inf"))
            groups[frozenset(pair for pair in labels if pair[0] != "le")].append((bound, value))
        return {labels: _quantile(wanted, sorted(rows)) for labels, rows in groups.items()}

    def selector(self, name: str, function: str) -> Vector:
        matchers = MATCHER.findall(self.take()) if self.peek().startswith("{") else []
        window = minutes(self.take()[1:-1]) if self.peek().startswith("[") else 0.0
        at = self.now
        if self.peek() == "offset":
            self.take()
            at -= int(minutes(self.take()))
        found: Vector = {}
        for each in self.series:
            if each.name != name or not _matches(dict(each.labels), matchers):
                continue
            values = each.values[max(0, at - int(window)) : at + 1] if at >= 0 else []
            if function and len(values) > 1:
                pairs = list(pairwise(values))
                rise = (values[-1] - values[0]) / (60 * len(pairs))
                changes = sum(a != b for a, b in pairs)
                found[each.labels] = rise if function == "rate" else float(changes)
            elif not function and values:
                found[each.labels] = values[-1]
        return found


def _matches(labels: dict[str, str], matchers: list[tuple[str, str, str]]) -> bool:
    for name, operator, wanted in matchers:
        value = labels.get(name, "")
        equal = re.fullmatch(wanted, value) is not None if operator == "=~" else value == wanted
        if equal == (operator == "!="):
            return False
    return True


def _quantile(wanted: float, rows: list[tuple[float, float]]) -> float:
    """Compute a quantile as Prometheus: linear within a bucket, else the last finite bound."""
    rank, before, lowest = wanted * rows[-1][1], 0.0, 0.0
    for bound, count in rows:
        if count >= rank and bound != float("inf"):
            return lowest + (bound - lowest) * (rank - before) / max(count - before, 1e-300)
        if bound != float("inf"):
            before, lowest = count, bound
    return lowest


def evaluate(expression: str, series: list[Series], now: int) -> Vector:
    """Return the labels for which a comparison holds in a minute."""
    reader = _Reader(expression, series, now)
    held = reader.comparison()
    assert not reader.tokens and isinstance(held, dict), reader.tokens
    return held


def firing(expression: str, for_minutes: float, series: list[Series], now: int) -> set[Labels]:
    """Return the labels for which it has held in every minute since `for_minutes`."""
    since = range(now - int(for_minutes), now + 1)
    return set.intersection(*(set(evaluate(expression, series, at)) for at in since))
