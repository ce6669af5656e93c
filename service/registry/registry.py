"""Keeps built-in and uploaded vocabularies by name, in memory and in a folder.

`entries` holds the loaded vocabularies. Requests read it without a lock; replacing a vocabulary
replaces one value of the dictionary, so that a request sees either the old or the new one, whole.
The engine drops the old one only when no request that was accepted before can be waiting for it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from dataclasses import replace as replace_fields
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
from service.engines.eviction import choose_evicted
from service.engines.fault_isolation import reraise_unless_failure
from service.registry.entries import DECODE_SUFFIX, LoadedVocabulary, RegisteredVocabulary
from service.registry.tokenizer_config import TokenizerConfig, TokenizerConfigs
from service.registry.vocabulary_store import make_reader, open_store, read_notes, write_notes
from service.registry.vocabulary_view import find_known
from vocabularies import builtin
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import add_checksum
from vocabularies.model import canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SUFFIX = ".vocabulary"


class Registry:
    """All vocabularies of one service by name."""

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
        """Register the vocabularies of the store, without reading their files."""
        for name, path in self.store.files(SUFFIX):
            if not NAME.fullmatch(name) or name in self.known:
                logger.warning("store: %s is not used: its name is invalid or taken", path.name)
                continue
            if name.endswith(DECODE_SUFFIX):
                logger.warning(
                    "store: %s cannot be used under /v2: give it another name", path.name
                )
            notes = read_notes(self.store, name)
            read = make_reader(path)
            self.known[name] = RegisteredVocabulary(name, "uploaded", "", False, read, notes)

    def names_to_preload(self) -> list[str]:
        """List the vocabularies that are loaded before the service is ready.

        Raises:
            UnknownVocabulary: the setting `preload` has an unknown name.
        """
        preload = self.settings.preload.strip()
        if preload == "none":
            return []
        if preload == "all":
            return list(self.known)
        names = [name.strip() for name in preload.split(",") if name.strip()]
        for name in names:
            self.find(name)
        return names

    def find(self, name: str) -> RegisteredVocabulary:
        """Find a vocabulary, loaded or not.

        Raises:
            UnknownVocabulary: no vocabulary has this name; the message suggests similar names.
        """
        return find_known(self.known, name)

    async def get_loaded(self, name: str) -> LoadedVocabulary:
        """Find a vocabulary and load it if needed, once for all requests that wait for it.

        Raises:
            UnknownVocabulary: no vocabulary has this name.
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
                return await self.get_loaded(name)
            raise NotReady(f"{name} cannot be loaded: {error}", "/vocabulary") from error

    def load(self, known: RegisteredVocabulary) -> LoadedVocabulary:
        """Read a vocabulary and load it on the engine; slow, so call it in a thread.

        Raises:
            VocabularyError: its file is damaged, or no encoder can compute it.
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
        self.evict(vocabulary.digest)
        return entry

    def _on_engine(self, name: str, vocabulary: Vocabulary) -> Residency:
        """Load on the engine; an error of the tokenizer library becomes a VocabularyError."""
        try:
            return self.engine.load(vocabulary, name in self._pinned)
        except VocabularyError:
            raise
        except BaseException as error:
            reraise_unless_failure(error)
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
        notes: tuple[str, ...] = (),
    ) -> tuple[LoadedVocabulary, bool]:
        """Register a vocabulary, its configuration and notes; slow, so call it in a thread.

        Returns:
            The entry, and whether anything changed (False: the name had this vocabulary before).

        Raises:
            ServiceError: the name is invalid, taken or built in, or there are too many names.
            VocabularyError: no encoder can compute it.
        """
        entry = self.entries.get(name)
        if entry is not None and entry.vocabulary.digest == vocabulary.digest:
            if not self.find(name).builtin:
                self._keep_rest(name, config, notes)
            return entry, False
        self.check_free(name, vocabulary, replace)
        path = self.store.path(name + SUFFIX)
        read = (lambda: vocabulary) if path is None else make_reader(path)
        known = RegisteredVocabulary(name, "uploaded", "", False, read, notes)
        residency = self._on_engine(name, vocabulary)
        with self._change:
            self.check_free(name, vocabulary, replace)
            self._keep(name, vocabulary, config, notes)
            entry = LoadedVocabulary(name, vocabulary, residency)
            self.known[name], self.entries[name] = known, entry
        self.evict(vocabulary.digest)
        return entry, True

    def _keep_rest(self, name: str, config: TokenizerConfig | None, notes: tuple[str, ...]) -> None:
        """Keep a configuration, if any, and notes of a vocabulary that the name has already."""
        with self._change, disk_errors():
            if config is not None:
                self.configs.put(name, config)
            known = self.known.get(name)
            if known is not None and known.notes != notes:
                write_notes(self.store, name, notes)
                self.known[name] = replace_fields(known, notes=notes)

    def _keep(
        self,
        name: str,
        vocabulary: Vocabulary,
        config: TokenizerConfig | None,
        notes: tuple[str, ...],
    ) -> None:
        """Write the vocabulary, its configuration and notes to disk, all or none."""
        before, known = self.configs.get(name), self.known.get(name)
        with disk_errors():
            self.configs.put(name, config)
            try:
                write_notes(self.store, name, notes)
                self.store.write(name + SUFFIX, add_checksum(canonical.to_bytes(vocabulary)))
            except OSError:
                self.configs.put(name, before)
                write_notes(self.store, name, () if known is None else known.notes)
                raise

    def evict(self, newest: str) -> None:
        """Evict the least recently used vocabularies until all fit `loaded_vocabulary_bytes`.

        If an accepted request still needs one of them, the engine loads it again.
        """
        digests = {name: entry.vocabulary.digest for name, entry in list(self.entries.items())}
        kept = {newest} | {digests[name] for name in digests.keys() & self._pinned}
        max_bytes = self.settings.loaded_vocabulary_bytes
        for digest in choose_evicted(self.engine.holdings(), kept, max_bytes):
            with self._change:
                names = [n for n, e in self.entries.items() if e.vocabulary.digest == digest]
                for name in names:
                    del self.entries[name]
                self.engine.unload(digest)
            logger.info("evicted %s (%s)", ", ".join(names) or "a replaced vocabulary", digest)

    def check_free(self, name: str, vocabulary: Vocabulary | None, replace: bool) -> None:
        """Check that a vocabulary may have a name; None stands for one that is not there yet.

        Raises:
            ServiceError: the name is invalid, taken or built in, or there are too many names.
        """
        if not NAME.fullmatch(name):
            message = "a name is 1 to 100 letters, digits, '.', '_' or '-', and begins with one of"
            raise InvalidRequest(message + " the first two", "/name")
        if name.endswith(DECODE_SUFFIX):
            meant = f"the decoder of {name.removesuffix(DECODE_SUFFIX)}"
            message = f"under /v2 this name means {meant}; a name must not end in {DECODE_SUFFIX}"
            raise InvalidRequest(message, "/name")
        known = self.known.get(name)
        if known is None:
            if (other := name + DECODE_SUFFIX) in self.known:  # From an older store.
                message = f"under /v2 the vocabulary {other} would become the decoder of {name}"
                raise NameTaken(f"{message}; delete it first", "/name")
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
            UnknownVocabulary: no vocabulary has this name.
            BuiltinProtected: the vocabulary is built in.
        """
        known = self.find(name)
        if known.builtin:
            raise BuiltinProtected(f"{name} is built in and cannot be deleted", "/name")
        with self._change:
            with disk_errors():
                self.store.remove(name + SUFFIX)
                self.configs.put(name, None)
                write_notes(self.store, name, ())
            for named in (self.known, self.entries, self.failures):
                named.pop(name, None)

    def unload(self, name: str) -> None:
        """Take a vocabulary off the engine; its next use loads it again."""
        self.find(name)
        with self._change:
            self.entries.pop(name, None)

    def forget_unused(self, digest: str) -> None:
        """Drop a vocabulary from the engine if no name has it any more."""
        with self._change:
            if all(entry.vocabulary.digest != digest for entry in self.entries.values()):
                self.engine.unload(digest)

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """Report how the engine holds a vocabulary now, which changes with evictions."""
        return self.engine.residency(entry.vocabulary.digest) or entry.residency


def _read(known: RegisteredVocabulary) -> Vocabulary:
    assert known.read is not None, "this process reads all vocabularies that it knows"
    return known.read()
