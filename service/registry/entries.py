"""Describes the vocabularies that have a name, and those that are loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.engines.base import Residency
from service.registry.tokenizer_config import TokenizerConfig
from vocabularies.model.vocabulary import Vocabulary

DECODE_SUFFIX = ".decode"
"""The suffix of models that decode ids, in the Open Inference Protocol."""


@dataclass(frozen=True, slots=True)
class RegisteredVocabulary:
    """A vocabulary that has a name in this service, loaded or not.

    Attributes:
        read: reads the vocabulary; slow, so call it in a thread. None if another process of the
            service reads it.
        notes: the settings in the vocabulary's files that the service ignores.
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
        residency: where the engine stored it after loading; `Registry.residency` returns the
            current state.
        config: its tokenizer configuration; None if it has none. A request that has found the
            vocabulary uses this one, whatever replaces the vocabulary meanwhile.
    """

    name: str
    vocabulary: Vocabulary
    residency: Residency
    config: TokenizerConfig | None = None
