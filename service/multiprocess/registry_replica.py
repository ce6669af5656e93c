"""The vocabularies of a front end: what has a name in the engine process, read there.

What changes vocabularies is forwarded to the engine process (request_forwarding.py), which then
sends its list to every front end and answers when all of them have followed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from service.core.errors import EngineLost, NotReady
from service.engines.base import Residency
from service.multiprocess.link.frames import Message
from service.multiprocess.remote_engine import RemoteEngine, residency_of
from service.registry.entries import LoadedVocabulary, RegisteredVocabulary
from service.registry.tokenizer_config import TokenizerConfig, TokenizerConfigs
from service.registry.vocabulary_store import open_store
from service.registry.vocabulary_view import find_known
from vocabularies import builtin
from vocabularies.formats.canonical import read_canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


class RegistryReplica:
    """A `VocabularyView` of names and vocabularies as the engine process last told them.

    Attributes:
        is_complete: the list of an engine process that had loaded everything was followed.
    """

    def __init__(self, engine: RemoteEngine) -> None:
        self.engine = engine
        self.known: dict[str, RegisteredVocabulary] = {}
        self.entries: dict[str, LoadedVocabulary] = {}
        self.failures: dict[str, str] = {}
        self.configs = TokenizerConfigs(open_store(None))
        self.is_complete = False
        self._has_list = False
        self._stamps: dict[str, tuple[str, int]] = {}
        self._following = asyncio.Lock()

    def find(self, name: str) -> RegisteredVocabulary:
        """What is known of a name.

        Raises:
            UnknownVocabulary: nothing; near names are suggested.
            EngineLost: the engine process has not told yet what there is.
        """
        if not self._has_list:
            raise EngineLost("the engine process is being started", "/vocabulary")
        return find_known(self.known, name)

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """How an entry's vocabulary was held when the engine process last told."""
        return entry.residency

    async def loaded(self, name: str) -> LoadedVocabulary:
        """The entry of a name; the engine process loads it first where it has not.

        Raises:
            ServiceError: no such name, or it cannot be loaded.
        """
        if (entry := self.entries.get(name)) is None:
            self.find(name)
            await self.engine.call(Message("load_name", {"name": name}))
            entry = self.entries.get(name)
        if entry is None:
            raise NotReady(f"{name} was unloaded meanwhile", "/vocabulary")
        return entry

    async def follow(self, listed: dict[str, Any]) -> None:
        """Become what the engine process says; what is not here yet is read first.

        Args:
            listed: see `EngineServer.list_vocabularies`.
        """
        async with self._following:
            self.known = {
                name: RegisteredVocabulary(name, source, licence, is_builtin)
                for name, source, licence, is_builtin in listed["known"]
            }
            self.failures = listed["failures"]
            self._has_list = True
            loaded = listed["entries"]
            for name in self.entries.keys() - loaded.keys():
                self.entries.pop(name)
                self._stamps.pop(name)
                self.configs.put(name, None)
            for name, (digest, stamp, residency) in loaded.items():
                if self._stamps.get(name) != (digest, stamp):
                    await self._read(name, digest, residency)
                    self._stamps[name] = digest, stamp
            self.is_complete = self.is_complete or listed["is_complete"]

    async def _read(self, name: str, digest: str, residency: dict[str, Any]) -> None:
        """Take over one vocabulary; built-in ones are read from this installation's files."""
        vocabulary: Vocabulary | None = None
        if self.known[name].builtin:
            vocabulary = await asyncio.to_thread(builtin.load, name)
        if vocabulary is None or vocabulary.digest != digest:
            answer = await self.engine.call(Message("vocabulary", {"name": name, "digest": digest}))
            content = answer.arrays[0].tobytes()
            vocabulary = await asyncio.to_thread(read_canonical, content)
            config = answer.values["config"]
            self.configs.put(name, None if config is None else TokenizerConfig(config))
        self.entries[name] = LoadedVocabulary(name, vocabulary, residency_of(residency))
