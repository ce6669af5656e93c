"""Describes vocabularies that have a name, and those of them that are loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.engines.base import Residency
from vocabularies.model.vocabulary import Vocabulary

DECODE_SUFFIX = ".decode"
"""Ends the name of the model that decodes ids of a vocabulary, in the Open Inference Protocol."""


@dataclass(frozen=True, slots=True)
class RegisteredVocabulary:
    """A vocabulary that has a name here, loaded or not.

    Attributes:
        read: reads the vocabulary; slow, so call it in a thread. None: another process of the
            service reads it.
        notes: the settings in its files that the service ignores.
    """

    name: str
    source: str
    licence: str
    builtin: bool
    read: Callable[[], Vocabulary] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedVocabulary:
    """A vocabulary that is loaded on the engine.

    Attributes:
        residency: how the engine held it after loading; `Registry.residency` has the state now.
    """

    name: str
    vocabulary: Vocabulary
    residency: Residency
