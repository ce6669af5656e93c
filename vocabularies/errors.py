"""The error of a wrong vocabulary or vocabulary file; it names the place of every fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a vocabulary and its place, such as ``merges[17]`` or ``line 3``."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class VocabularyError(ValueError):
    """A vocabulary, or a file that should hold one, is wrong; ``findings`` names every place."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(map(str, self.findings[:20])))

    @classmethod
    def at(cls, where: str, message: str) -> VocabularyError:
        """Make an error of a single finding."""
        return cls((Finding(where, message),))
