"""What a name means: a vocabulary that is known, and one that is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.engines.base import Residency
from vocabularies.model.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class RegisteredVocabulary:
    """A vocabulary that has a name here, loaded or not.

    Attributes:
        read: gives the vocabulary's value; may take a second, for a thread. None: another process
            of the service reads it.
    """

    name: str
    source: str
    licence: str
    builtin: bool
    read: Callable[[], Vocabulary] | None = None


@dataclass(frozen=True, slots=True)
class LoadedVocabulary:
    """A loaded vocabulary: what a request needs to know of it.

    Attributes:
        residency: as it was loaded; `Registry.residency` knows what has become of it.
    """

    name: str
    vocabulary: Vocabulary
    residency: Residency
