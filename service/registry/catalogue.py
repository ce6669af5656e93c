"""The read-only side of vocabularies by name: what every process of the service answers from.

`Registry` has it where the engine is, `RegistryReplica` in a front end.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Protocol

from service.core.errors import UnknownVocabulary
from service.engines.base import Residency
from service.registry.entries import LoadedVocabulary, RegisteredVocabulary
from service.registry.tokenizer_config import TokenizerConfigs


class Catalogue(Protocol):
    """Names, and what they mean now."""

    @property
    def known(self) -> Mapping[str, RegisteredVocabulary]:
        """All vocabularies by name, loaded or not."""

    @property
    def entries(self) -> Mapping[str, LoadedVocabulary]:
        """The loaded ones by name."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Why a vocabulary cannot be loaded, by name."""

    @property
    def configs(self) -> TokenizerConfigs:
        """What came with uploaded vocabularies."""

    def find(self, name: str) -> RegisteredVocabulary:
        """What is known of a name.

        Raises:
            ServiceError: nothing.
        """

    async def loaded(self, name: str) -> LoadedVocabulary:
        """The entry of a name; what is not loaded is loaded now.

        Raises:
            ServiceError: no such name, or it cannot be loaded.
        """

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """How an entry's vocabulary is held now."""


def find_known(known: Mapping[str, RegisteredVocabulary], name: str) -> RegisteredVocabulary:
    """The vocabulary of a name.

    Raises:
        UnknownVocabulary: there is none; near names are suggested.
    """
    if (found := known.get(name)) is not None:
        return found
    folded = {each.casefold(): each for each in known}
    near = [folded[n] for n in difflib.get_close_matches(name.casefold(), folded, cutoff=0.5)]
    hint = f"; near names are {', '.join(near)}" if near else ""
    raise UnknownVocabulary(f"no vocabulary has this name{hint}", "/vocabulary")
