"""Keeps a front end's copy of the engine process's vocabularies.

Requests that change vocabularies are forwarded to the engine process (request_forwarding.py). It
then sends its list to every front end, and answers when all of them have followed it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from service.core.errors import EngineLost, NotReady
from service.engines.base import Residency
from service.multiprocess.link.frames import Message
from service.multiprocess.remote_engine import RemoteEngine, read_residency
from service.registry.entries import LoadedVocabulary, RegisteredVocabulary
from service.registry.tokenizer_config import TokenizerConfig, TokenizerConfigs
from service.registry.vocabulary_store import open_store
from service.registry.vocabulary_view import VOCABULARY, find_known
from vocabularies import builtin
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


class RegistryReplica:
    """A `VocabularyView` of the last list of the engine process.

    Attributes:
        is_complete: whether an engine process has sent a list after it had loaded everything.
    """

    def __init__(self, engine: RemoteEngine) -> None:
        self.engine = engine
        self.known: dict[str, RegisteredVocabulary] = {}
        self.aliases: dict[str, str] = {}
        self.entries: dict[str, LoadedVocabulary] = {}
        self.failures: dict[str, str] = {}
        self.configs = TokenizerConfigs(open_store(None))
        self.is_complete = False
        self._has_list = False
        self._versions: dict[str, tuple[str, int]] = {}  # Digest and number of the configuration.
        self._following = asyncio.Lock()

    def find(self, name: str, where: str = VOCABULARY) -> RegisteredVocabulary:
        """Find a vocabulary, loaded or not, by any of its names.

        Raises:
            UnknownVocabulary: no vocabulary has this name; the message suggests similar names.
            EngineLost: the engine process has not sent a list yet.
        """
        if not self._has_list:
            raise EngineLost("the engine process is being started", where)
        return find_known(self.known, self.aliases, name, where)

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """Return the state of a vocabulary in the last list."""
        return entry.residency

    async def get_loaded(self, name: str, where: str = VOCABULARY) -> LoadedVocabulary:
        """Find a vocabulary; the engine process loads it if needed.

        Raises:
            ServiceError: no vocabulary has this name, or it cannot be loaded.
        """
        own = self.find(name, where).name
        if (entry := self.entries.get(own)) is None:
            await self.engine.call(Message("load_name", {"name": own, "where": where}))
            entry = self.entries.get(own)
        if entry is None:
            raise NotReady(f"{name} was unloaded meanwhile", where)
        return entry

    async def follow(self, listed: dict[str, Any]) -> None:
        """Follow a list of the engine process: read new vocabularies, and forget removed ones.

        Args:
            listed: see `EngineServer.list_vocabularies`.
        """
        async with self._following:
            self.known = {
                name: RegisteredVocabulary(name, source, licence, is_builtin, None, tuple(notes))
                for name, source, licence, is_builtin, notes in listed["known"]
            }
            self.aliases = listed["aliases"]
            self.failures = listed["failures"]
            self._has_list = True
            loaded = listed["entries"]
            for name in self.entries.keys() - loaded.keys():
                self.entries.pop(name)
                self._versions.pop(name)
                self.configs.put(name, None)
            for name, (digest, config_number, residency) in loaded.items():
                if self._versions.get(name) != (digest, config_number):
                    await self._read(name, digest, residency)
                    self._versions[name] = digest, config_number
            self.is_complete = self.is_complete or listed["is_complete"]

    async def _read(self, name: str, digest: str, residency: dict[str, Any]) -> None:
        """Read one vocabulary: a built-in one from its file, others from the engine process."""
        vocabulary: Vocabulary | None = None
        if self.known[name].builtin:
            vocabulary = await asyncio.to_thread(builtin.load, name)
        if vocabulary is None or vocabulary.digest != digest:
            answer = await self.engine.call(Message("vocabulary", {"name": name, "digest": digest}))
            content = answer.arrays[0].tobytes()
            vocabulary = await asyncio.to_thread(_read_vocabulary, content)
            config = answer.values["config"]
            self.configs.put(name, None if config is None else TokenizerConfig(config))
        self.entries[name] = LoadedVocabulary(name, vocabulary, read_residency(residency))


def _read_vocabulary(content: bytes) -> Vocabulary:
    """Read a vocabulary, and find whether it may take long, which reads large files again."""
    vocabulary = read_canonical(content)
    _ = vocabulary.may_take_long
    return vocabulary
