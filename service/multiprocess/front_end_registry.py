"""Stores a front end's copy of the engine process's vocabularies.

Requests that change vocabularies are forwarded to the engine process (request_forwarding.py). It
then sends the changes to every front end, and answers when all of them have applied them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar

from service.core.errors import EngineLost, NotReady
from service.engines.base import Residency
from service.multiprocess.link.frames import Message
from service.multiprocess.remote_engine import RemoteEngine, read_residency
from service.registry.entries import LoadedVocabulary, RegisteredVocabulary
from service.registry.tokenizer_config import TokenizerConfig
from service.registry.tokenizer_configs import TokenizerConfigs
from service.registry.vocabulary_store import VocabularyStore
from service.registry.vocabulary_view import VOCABULARY, find_known
from vocabularies import builtin
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
MAX_LOADS = 4  # Of one request, as others may evict the vocabulary before it is read here.
T = TypeVar("T")


class _Version(NamedTuple):
    """A loaded vocabulary of the engine process.

    Attributes:
        config_number: the number of the vocabulary's configuration.
        residency: the state of the vocabulary on the engine, in the form of `write_residency`.
    """

    digest: str
    config_number: int
    residency: dict[str, Any]

    def is_same(self, other: _Version) -> bool:
        """Return whether the vocabulary and its configuration are the same."""
        return (self.digest, self.config_number) == (other.digest, other.config_number)


class FrontEndRegistry:
    """Implements `VocabularyView` with the lists that the engine process has sent.

    Attributes:
        is_complete: whether the engine process has sent a list after loading all vocabularies.
        has_list: an event that is set when the engine process has sent the first list.
    """

    def __init__(self, engine: RemoteEngine) -> None:
        self.engine = engine
        self.known: dict[str, RegisteredVocabulary] = {}
        self.aliases: dict[str, str] = {}
        self.entries: dict[str, LoadedVocabulary] = {}
        self.failures: dict[str, str] = {}
        self.configs = TokenizerConfigs(VocabularyStore(None))
        self.is_complete = False
        self.has_list = asyncio.Event()
        self._versions: dict[str, _Version] = {}
        self._unread: dict[str, _Version] = {}
        self._following = asyncio.Lock()

    def find(self, name: str, where: str = VOCABULARY) -> RegisteredVocabulary:
        """Find a vocabulary, loaded or not, by any of its names.

        Raises:
            UnknownVocabulary: no vocabulary has this name; the message suggests similar names.
            EngineLost: the engine process has not sent a list yet.
        """
        if not self.has_list.is_set():
            raise EngineLost("the engine process is being started", where)
        return find_known(self.known, self.aliases, name, where)

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """Return the state of a vocabulary in the last list."""
        return entry.residency

    async def get_loaded(self, name: str, where: str = VOCABULARY) -> LoadedVocabulary:
        """Return a vocabulary; the engine process loads it if needed.

        Raises:
            ServiceError: no vocabulary has this name, or it cannot be loaded.
        """
        own = self.find(name, where).name
        for _ in range(MAX_LOADS):
            if (entry := self.entries.get(own)) is not None:
                return entry
            await self.engine.call(Message("load_name", {"name": own, "where": where}))
            own = self.find(name, where).name
        if (entry := self.entries.get(own)) is not None:
            return entry
        raise NotReady(f"{name} was unloaded during the request", where)

    async def follow(self, listed: dict[str, Any]) -> None:
        """Apply a list of the engine process: read new vocabularies, and remove missing ones.

        Args:
            listed: the list, as `EngineServer.list_vocabularies` makes it.
        """
        async with self._following:
            self._update(listed)
            for name, version in list(self._unread.items()):
                await self._read(name, version)
                self._versions[name] = self._unread.pop(name)
            self.is_complete = self.is_complete or listed["is_complete"]

    def _update(self, listed: dict[str, Any]) -> None:
        """Apply the changes in a list, and note which vocabularies have to be read."""
        loaded = {name: _Version(*values) for name, values in listed["entries"].items()}
        names: Collection[str] | None = listed["names"]
        if names is None:
            names = {*self.known, *self.aliases, *self.failures, *self.entries, *self._unread}
        known = {
            name: RegisteredVocabulary(name, source, licence, is_builtin, None, tuple(notes))
            for name, (source, licence, is_builtin, notes) in listed["known"].items()
        }
        _replace(self.known, known, names)
        _replace(self.aliases, listed["aliases"], names)
        _replace(self.failures, listed["failures"], names)
        self.has_list.set()
        for name in names:
            if name not in loaded:
                self._unread.pop(name, None)
                if self.entries.pop(name, None) is not None:
                    self._versions.pop(name)
                    self.configs.put(name, None)
        for name, version in loaded.items():
            read = self._versions.get(name)
            self._unread.pop(name, None)
            if read is None or not read.is_same(version):
                self._unread[name] = version

    async def _read(self, name: str, version: _Version) -> None:
        """Read a vocabulary: a built-in one from its file, any other from the engine process."""
        digest = version.digest
        vocabulary: Vocabulary | None = None
        config: TokenizerConfig | None = None
        if self.known[name].builtin:
            vocabulary = await asyncio.to_thread(builtin.load, name)
        if vocabulary is None or vocabulary.digest != digest:
            answer = await self.engine.call(Message("vocabulary", {"name": name, "digest": digest}))
            content = answer.arrays[0].tobytes()
            vocabulary = await asyncio.to_thread(_read_vocabulary, content)
            values = answer.values["config"]
            config = None if values is None else TokenizerConfig(values)
            self.configs.put(name, config)
        residency = read_residency(version.residency)
        self.entries[name] = LoadedVocabulary(name, vocabulary, residency, config)


def _replace(values: dict[str, T], new: dict[str, T], names: Collection[str]) -> None:
    """Replace the values of some names; a name without a new value is removed."""
    for name in names:
        if name not in new:
            values.pop(name, None)
    values.update(new)


def _read_vocabulary(content: bytes) -> Vocabulary:
    """Read a vocabulary, and cache whether its texts may take unbounded time."""
    vocabulary = read_canonical(content)
    _ = vocabulary.may_take_long
    return vocabulary
