"""Vocabularies by name: the built-in ones and those that were uploaded, in memory and in a folder.

`entries` holds what can be used at once; operations read it without a lock, and a swap replaces
one value of the dictionary, so that every request sees either the old or the new vocabulary, whole.
The engine forgets an old one only when no request accepted before the swap can be waiting.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from functools import partial

from service.core.errors import (
    BuiltinProtected,
    InvalidRequest,
    NameTaken,
    NotReady,
    TooLarge,
    disk_errors,
)
from service.core.settings import Settings
from service.engines.base import Engine, Residency
from service.engines.eviction import leaving
from service.engines.fault_isolation import raise_if_not_the_engines
from service.registry.catalogue import find_known
from service.registry.entries import LoadedVocabulary, RegisteredVocabulary
from service.registry.tokenizer_config import TokenizerConfig, TokenizerConfigs
from service.registry.vocabulary_store import make_reader, open_store
from vocabularies import builtin
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical import add_checksum
from vocabularies.model import canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SUFFIX = ".vocabulary"


class Registry:
    """Names, and what they mean now."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.entries: dict[str, LoadedVocabulary] = {}
        self.known: dict[str, RegisteredVocabulary] = {}
        self.failures: dict[str, str] = {}
        self.store = open_store(settings.store_dir)
        self.configs = TokenizerConfigs(self.store)
        self._pinned = {settings.default_vocabulary, *map(str.strip, settings.pinned.split(","))}
        self._loading: dict[RegisteredVocabulary, asyncio.Task[LoadedVocabulary]] = {}
        self._change = threading.Lock()
        for name in builtin.BUILTINS:
            info = builtin.describe(name)
            self.known[name] = RegisteredVocabulary(
                name, info.source, info.licence, True, partial(builtin.load, name)
            )
        self._read_store()

    def _read_store(self) -> None:
        """Name what the store holds; a damaged file is reported and its name stays free."""
        for name, path in self.store.files(SUFFIX):
            if not NAME.fullmatch(name) or name in self.known:
                logger.warning("store: %s is not used: its name is no free name", path.name)
                continue
            self.known[name] = RegisteredVocabulary(name, "uploaded", "", False, make_reader(path))

    def names_to_preload(self) -> list[str]:
        """What the service loads before it is ready.

        Raises:
            UnknownVocabulary: the setting `preload` names something unknown.
        """
        wanted = self.settings.preload.strip()
        if wanted == "none":
            return []
        if wanted == "all":
            return list(self.known)
        names = [name.strip() for name in wanted.split(",") if name.strip()]
        for name in names:
            self.find(name)
        return names

    def find(self, name: str) -> RegisteredVocabulary:
        """What is known of a name.

        Raises:
            UnknownVocabulary: nothing; near names are suggested.
        """
        return find_known(self.known, name)

    async def loaded(self, name: str) -> LoadedVocabulary:
        """The entry of a name; what is not loaded is loaded now, once for all who wait.

        Raises:
            UnknownVocabulary: no such name.
            NotReady: it cannot be loaded; the message says why.
        """
        if (entry := self.entries.get(name)) is not None:
            return entry
        known = self.find(name)
        task = self._loading.get(known)
        if task is None:
            task = asyncio.ensure_future(asyncio.to_thread(self.load, known))
            self._loading[known] = task
            task.add_done_callback(lambda _: self._loading.pop(known, None))
        try:
            return await asyncio.shield(task)
        except VocabularyError as error:
            if self.known.get(name) is not known:  # Deleted or replaced while it was read.
                return await self.loaded(name)
            raise NotReady(f"{name} cannot be loaded: {error}", "/vocabulary") from error

    def load(self, known: RegisteredVocabulary) -> LoadedVocabulary:
        """Read a vocabulary and make it ready on the engine; slow, for a thread.

        Raises:
            VocabularyError: its file is damaged, or nothing here computes it.
        """
        try:
            vocabulary = _read(known)
            residency = self._on_engine(known.name, vocabulary)
        except VocabularyError as error:
            with self._change:
                if self.known.get(known.name) is known:
                    self.failures[known.name] = str(error)
                    logger.error("vocabulary %s cannot be loaded: %s", known.name, error)
            raise
        if residency.fallback_reason:
            logger.warning("vocabulary %s: %s", known.name, residency.fallback_reason)
        entry = LoadedVocabulary(known.name, vocabulary, residency)
        with self._change:
            if self.known.get(known.name) is known:
                self.entries[known.name] = entry
                self.failures.pop(known.name, None)
        self.make_room(vocabulary.digest)
        return entry

    def _on_engine(self, name: str, vocabulary: Vocabulary) -> Residency:
        """Load on the engine; a library that breaks on a vocabulary makes it a wrong vocabulary."""
        try:
            return self.engine.load(vocabulary, name in self._pinned)
        except VocabularyError:
            raise
        except BaseException as error:
            raise_if_not_the_engines(error)
            level = logging.ERROR if isinstance(error, Exception) else logging.WARNING
            logger.log(level, "the engine broke on %s", vocabulary.digest, exc_info=error)
            message = f"the tokenizer library breaks on this vocabulary: {error}"
            raise VocabularyError.at("vocabulary", message) from error

    def put(
        self,
        name: str,
        vocabulary: Vocabulary,
        replace: bool,
        config: TokenizerConfig | None = None,
    ) -> tuple[LoadedVocabulary, bool]:
        """Give a vocabulary a name, and what came with it; slow, for a thread.

        Returns:
            The entry, and whether anything changed (False: the name meant this vocabulary before).

        Raises:
            ServiceError: the name is impossible, taken or a built-in's, or too many are known.
            VocabularyError: nothing here computes it.
        """
        entry = self.entries.get(name)
        if entry is not None and entry.vocabulary.digest == vocabulary.digest:
            if config is not None and not self.find(name).builtin:
                with disk_errors():
                    self.configs.put(name, config)
            return entry, False
        self.check_free(name, vocabulary, replace)
        path = self.store.path(name + SUFFIX)
        read = (lambda: vocabulary) if path is None else make_reader(path)
        known = RegisteredVocabulary(name, "uploaded", "", False, read)
        residency = self._on_engine(name, vocabulary)
        with self._change:
            self.check_free(name, vocabulary, replace)
            self._keep(name, vocabulary, config)
            entry = LoadedVocabulary(name, vocabulary, residency)
            self.known[name], self.entries[name] = known, entry
        self.make_room(vocabulary.digest)
        return entry, True

    def _keep(self, name: str, vocabulary: Vocabulary, config: TokenizerConfig | None) -> None:
        """On the disk, both or neither."""
        before = self.configs.get(name)
        with disk_errors():
            self.configs.put(name, config)
            try:
                self.store.write(name + SUFFIX, add_checksum(canonical.to_bytes(vocabulary)))
            except OSError:
                self.configs.put(name, before)
                raise

    def make_room(self, newest: str) -> None:
        """Unload what was longest unused, until all takes `loaded_vocabulary_bytes` at most.

        A request that was accepted before has the engine load its vocabulary once more.
        """
        digests = {name: entry.vocabulary.digest for name, entry in list(self.entries.items())}
        kept = {newest} | {digests[name] for name in digests.keys() & self._pinned}
        max_bytes = self.settings.loaded_vocabulary_bytes
        for digest in leaving(self.engine.holdings(), kept, max_bytes):
            with self._change:
                names = [n for n, e in self.entries.items() if e.vocabulary.digest == digest]
                for name in names:
                    del self.entries[name]
                self.engine.unload(digest)
            logger.info("unloaded %s (%s) to make room", ", ".join(names) or "no name's", digest)

    def check_free(self, name: str, vocabulary: Vocabulary | None, replace: bool) -> None:
        """Whether a vocabulary, or one that is yet to come (None), may have a name.

        Raises:
            ServiceError: the name is impossible, taken or a built-in's, or too many are known.
        """
        if not NAME.fullmatch(name):
            message = "a name is 1 to 100 letters, digits, '.', '_' or '-', and begins with one of"
            raise InvalidRequest(message + " the first two", "/name")
        known = self.known.get(name)
        if known is None:
            if len(self.known) >= (limit := self.settings.max_vocabularies):
                raise TooLarge(f"{limit} vocabularies are known (max_vocabularies)", "/name")
            return
        if known.builtin:
            raise BuiltinProtected(f"{name} is built in; choose another name", "/name")
        if replace:
            return
        meant = "another vocabulary"
        try:
            meant = _read(known).digest if vocabulary is not None else meant
        except VocabularyError as error:
            if self.known.get(name) is not known:  # Deleted or replaced while it was read.
                return self.check_free(name, vocabulary, replace)
            meant = f"one that cannot be read ({error})"
        if vocabulary is None or meant != vocabulary.digest:
            raise NameTaken(f"{name} means {meant}; replace=true changes that", "/name")

    def delete(self, name: str) -> None:
        """Forget a name and its file.

        Raises:
            UnknownVocabulary: no such name.
            BuiltinProtected: it is a built-in's.
        """
        known = self.find(name)
        if known.builtin:
            raise BuiltinProtected(f"{name} is built in and cannot be deleted", "/name")
        with self._change:
            with disk_errors():
                self.store.remove(name + SUFFIX)
                self.configs.put(name, None)
            for named in (self.known, self.entries, self.failures):
                named.pop(name, None)

    def unload(self, name: str) -> None:
        """Take a vocabulary off the engine; its next use loads it again."""
        self.find(name)
        with self._change:
            self.entries.pop(name, None)

    def forget_unused(self, digest: str) -> None:
        """Let the engine drop a vocabulary that no name means any more."""
        with self._change:
            if all(entry.vocabulary.digest != digest for entry in self.entries.values()):
                self.engine.unload(digest)

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """How an entry's vocabulary is held now; it may have left the GPU, or come to it."""
        return self.engine.residency(entry.vocabulary.digest) or entry.residency


def _read(known: RegisteredVocabulary) -> Vocabulary:
    assert known.read is not None, "this process reads all vocabularies that it knows"
    return known.read()
