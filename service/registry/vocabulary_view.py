"""The read-only side of the registry, from which every process of the service answers.

`Registry` implements it in the process of the engine, `RegistryReplica` in a front end.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Protocol

from service.core.errors import UnknownVocabulary
from service.engines.base import Residency
from service.registry.entries import LoadedVocabulary, RegisteredVocabulary
from service.registry.tokenizer_config import TokenizerConfigs


class VocabularyView(Protocol):
    """Finds vocabularies by name."""

    @property
    def known(self) -> Mapping[str, RegisteredVocabulary]:
        """All vocabularies by name, loaded or not."""

    @property
    def entries(self) -> Mapping[str, LoadedVocabulary]:
        """The loaded vocabularies by name."""

    @property
    def failures(self) -> Mapping[str, str]:
        """The reasons why vocabularies could not be loaded, by name."""

    @property
    def configs(self) -> TokenizerConfigs:
        """The tokenizer configurations of uploaded vocabularies."""

    def find(self, name: str) -> RegisteredVocabulary:
        """Find a vocabulary, loaded or not.

        Raises:
            ServiceError: no vocabulary has this name.
        """

    async def get_loaded(self, name: str) -> LoadedVocabulary:
        """Find a vocabulary and load it if needed.

        Raises:
            ServiceError: no vocabulary has this name, or it cannot be loaded.
        """

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """Report how the engine holds a vocabulary now."""


def find_known(known: Mapping[str, RegisteredVocabulary], name: str) -> RegisteredVocabulary:
    """Find a vocabulary by its name.

    Raises:
        UnknownVocabulary: no vocabulary has this name; the message suggests similar names.
    """
    if (found := known.get(name)) is not None:
        return found
    folded = {each.casefold(): each for each in known}
    near = [folded[n] for n in difflib.get_close_matches(name.casefold(), folded, cutoff=0.5)]
    hint = f"; near names are {', '.join(near)}" if near else ""
    raise UnknownVocabulary(f"no vocabulary has this name{hint}", "/vocabulary")
