"""Stores the tokenizer configurations of uploaded vocabularies beside their files."""

from __future__ import annotations

import json
import logging

from service.registry.tokenizer_config import TokenizerConfig
from service.registry.vocabulary_store import CONFIG_SUFFIX, VocabularyStore
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import add_checksum, strip_checksum

logger = logging.getLogger(__name__)


class TokenizerConfigs:
    """The configurations of uploaded vocabularies, by name.

    Args:
        store: the store that contains them.
    """

    def __init__(self, store: VocabularyStore) -> None:
        self.store = store
        self._configs: dict[str, TokenizerConfig] = {}
        for name, content in store.read_all(CONFIG_SUFFIX):
            self._keep(name, content)

    def read(self, name: str) -> None:
        """Read the configuration of a vocabulary from the store; log a damaged one."""
        try:
            self._keep(name, self.store.read(name + CONFIG_SUFFIX))
        except OSError as error:
            self._keep(name, error)

    def _keep(self, name: str, content: bytes | OSError) -> None:
        try:
            if isinstance(content, OSError):
                raise content
            self._configs[name] = TokenizerConfig.of(strip_checksum(content))
        except FileNotFoundError:
            self._configs.pop(name, None)
        except (VocabularyError, OSError) as error:
            logger.error("store: %s%s is not used: %s", name, CONFIG_SUFFIX, error)

    def get(self, name: str) -> TokenizerConfig | None:
        """Return the configuration of a vocabulary; None if it has none."""
        return self._configs.get(name)

    def set(self, name: str, config: TokenizerConfig) -> None:
        """Set the configuration of a vocabulary that is not in the store."""
        self._configs[name] = config

    def put(self, name: str, config: TokenizerConfig | None) -> None:
        """Store the configuration of a vocabulary; None removes it."""
        if config is None:
            self.store.remove(name + CONFIG_SUFFIX)
            self._configs.pop(name, None)
        else:
            self.store.write(name + CONFIG_SUFFIX, add_checksum(json.dumps(config.values).encode()))
            self._configs[name] = config
