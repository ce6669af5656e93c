"""The read-only interface of the registry, which every process of the service uses.

`Registry` implements it in the process with the engine, `FrontEndRegistry` in a front end.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Protocol

from service.core.errors import UnknownVocabulary
from service.engines.base import Residency
from service.registry.entries import LoadedVocabulary, RegisteredVocabulary
from service.registry.tokenizer_configs import TokenizerConfigs

VOCABULARY = "/vocabulary"  # The place of the name in most requests.


class VocabularyView(Protocol):
    """Finds vocabularies by name."""

    @property
    def known(self) -> Mapping[str, RegisteredVocabulary]:
        """A dictionary of all vocabularies by their own names, loaded or not."""

    @property
    def entries(self) -> Mapping[str, LoadedVocabulary]:
        """A dictionary of the loaded vocabularies by their own names."""

    @property
    def aliases(self) -> Mapping[str, str]:
        """A dictionary from each alias to the own name of its vocabulary."""

    @property
    def failures(self) -> Mapping[str, str]:
        """The reason why each failed vocabulary could not be loaded, by its own name."""

    @property
    def configs(self) -> TokenizerConfigs:
        """The tokenizer configurations of uploaded vocabularies."""

    def find(self, name: str, where: str = VOCABULARY) -> RegisteredVocabulary:
        """Find a vocabulary, loaded or not, by its own name or an alias.

        Args:
            name: the name.
            where: the place of the name in the request, for a refusal.

        Raises:
            ServiceError: no vocabulary has this name.
        """

    async def get_loaded(self, name: str, where: str = VOCABULARY) -> LoadedVocabulary:
        """Find a vocabulary and load it if needed.

        Raises:
            ServiceError: no vocabulary has this name, or it cannot be loaded.
        """

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """Return where the engine stores a vocabulary now."""


def find_known(
    known: Mapping[str, RegisteredVocabulary], aliases: Mapping[str, str], name: str, where: str
) -> RegisteredVocabulary:
    """Find a vocabulary by its own name or an alias.

    Raises:
        UnknownVocabulary: no vocabulary has this name; the message suggests similar names.
    """
    own = aliases.get(name, "")
    if (found := known.get(name) or known.get(own)) is not None:
        return found
    if own:
        raise UnknownVocabulary(f"this is an alias of {own}, which does not exist", where)
    folded = {each.casefold(): each for each in (*known, *aliases)}
    near = [folded[n] for n in difflib.get_close_matches(name.casefold(), folded, cutoff=0.5)]
    hint = f"; near names are {', '.join(near)}" if near else ""
    raise UnknownVocabulary(f"no vocabulary has this name{hint}", where)
