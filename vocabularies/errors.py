"""The error for an invalid vocabulary or vocabulary file, with the place of every fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault in a vocabulary, and its place, such as ``merges[17]`` or ``line 3``."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class VocabularyError(ValueError):
    """A vocabulary or a vocabulary file is invalid; ``findings`` lists every fault."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(map(str, self.findings[:20])))

    @classmethod
    def at(cls, where: str, message: str) -> VocabularyError:
        """Make an error with a single finding."""
        return cls((Finding(where, message),))
