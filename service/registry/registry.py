"""Manages built-in and uploaded vocabularies by name, in memory and in a store.

`entries` contains the loaded vocabularies. Requests read it without a lock. Replacing a vocabulary
replaces one value of the dictionary, so that a request finds either the old or the new vocabulary.
The engine drops the old vocabulary only when no earlier request can still be waiting for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace as replace_fields
from functools import partial

from service.core.errors import (
    AliasGiven,
    BuiltinProtected,
    NameTaken,
    NotReady,
    TooLarge,
    disk_errors,
)
from service.core.settings import Settings
from service.engines.base import Engine, Residency
from service.engines.cpu.patterns.measurement import refuse_slow_patterns
from service.engines.eviction import choose_evicted
from service.engines.fault_isolation import reraise_unless_failure
from service.registry.changes import Changes
from service.registry.entries import DECODE_SUFFIX, LoadedVocabulary, RegisteredVocabulary
from service.registry.model_folder import find_model_names, read_model
from service.registry.names import Aliases, check_name, find_name_fault
from service.registry.tokenizer_config import TokenizerConfig
from service.registry.tokenizer_configs import TokenizerConfigs
from service.registry.vocabulary_store import (
    SUFFIX,
    make_reader,
    open_store,
    read_stored,
    write_notes,
)
from service.registry.vocabulary_view import VOCABULARY, find_known
from vocabularies import builtin
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import add_checksum
from vocabularies.model import canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


class Registry:
    """All vocabularies of one service by name.

    Attributes:
        entries: the loaded vocabularies by their own names.
        known: all vocabularies by their own names.
        failures: the reasons why vocabularies could not be loaded, by their own names.
        aliases: a dictionary from each alias to the own name of its vocabulary.
        changes: the numbered changes of names and aliases.

    Raises:
        ValueError: the setting `aliases` is invalid, or the store of uploads cannot be read.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.entries: dict[str, LoadedVocabulary] = {}
        self.known: dict[str, RegisteredVocabulary] = {}
        self.failures: dict[str, str] = {}
        self.changes = Changes()
        self.store = open_store(settings)
        self.configs = TokenizerConfigs(self.store)
        self._aliases = Aliases(settings.aliases, self.store, settings.max_vocabularies)
        self.aliases = self._aliases.names
        self._pinned = {settings.default_vocabulary, *map(str.strip, settings.pinned.split(","))}
        self._loading: dict[RegisteredVocabulary, asyncio.Task[LoadedVocabulary]] = {}
        self._change = threading.Lock()
        if settings.model_dir is None:
            self._add_builtins()
            self._read_store()
        else:
            self._add_model()
        self._aliases.read_store(self.known)

    def _add_builtins(self) -> None:
        for name in builtin.BUILTINS:
            info = builtin.describe(name)
            self.known[name] = RegisteredVocabulary(
                name, info.source, info.licence, True, partial(builtin.load, name)
            )

    def _add_model(self) -> None:
        """Register the model of the setting `model_dir`, and read it immediately."""
        gc.disable()  # Reading creates little garbage, but collecting takes a fifth of the time.
        try:
            model = read_model(self.settings)
        finally:
            gc.enable()
        for note in model.notes:
            logger.warning("%s: %s", self.settings.model_dir, note)
        own, *others = find_model_names(self.settings)
        self.known[own] = RegisteredVocabulary(
            own, "model folder", "", False, lambda: model.vocabulary, model.notes
        )
        self.configs.set(own, model.config)
        self._aliases.names.update(dict.fromkeys(others, own))

    def _read_store(self) -> None:
        """Register the vocabularies of the store without reading their files."""
        for name in self.store.names(SUFFIX):
            file = name + SUFFIX
            if find_name_fault(name) or name in self.known:
                logger.warning("store: %s is not used: its name is invalid or taken", file)
                continue
            if name.endswith(DECODE_SUFFIX):
                logger.warning("store: %s cannot be used under /v2: give it another name", file)
            self.known[name] = read_stored(self.store, name)

    def names_to_preload(self) -> list[str]:
        """Return the own names of the vocabularies to load before the service is ready.

        Raises:
            UnknownVocabulary: the setting `preload` contains an unknown name.
        """
        preload = self.settings.preload.strip()
        if preload == "none":
            return []
        if preload == "all":
            return list(self.known)
        names = [name.strip() for name in preload.split(",") if name.strip()]
        return list(dict.fromkeys(self.find(name).name for name in names))

    def find(self, name: str, where: str = VOCABULARY) -> RegisteredVocabulary:
        """Find a vocabulary, loaded or not, by its own name or an alias.

        Args:
            name: the name.
            where: the place of the name in the request, for a refusal.

        Raises:
            UnknownVocabulary: no vocabulary has this name; the message suggests similar names.
        """
        return find_known(self.known, self.aliases, name, where)

    async def get_loaded(self, name: str, where: str = VOCABULARY) -> LoadedVocabulary:
        """Find a vocabulary, and load it if needed, once for all requests that wait for it.

        Raises:
            UnknownVocabulary: no vocabulary has this name.
            NotReady: the vocabulary cannot be loaded; the message contains the reason.
        """
        known = self.find(name, where)
        if (entry := self.entries.get(known.name)) is not None:
            return entry
        task = self._loading.get(known)
        if task is None:
            task = asyncio.ensure_future(asyncio.to_thread(self.load, known))
            self._loading[known] = task
            task.add_done_callback(lambda _: self._loading.pop(known, None))
        try:
            return await asyncio.shield(task)
        except VocabularyError as error:
            if self.known.get(known.name) is not known:  # Deleted or replaced while it was read.
                return await self.get_loaded(name, where)
            raise NotReady(f"{name} cannot be loaded: {error}", where) from error

    def load(self, known: RegisteredVocabulary) -> LoadedVocabulary:
        """Read a vocabulary and load it on the engine; slow, so call it in a thread.

        Raises:
            VocabularyError: its file is damaged, or no encoder supports the vocabulary.
        """
        try:
            vocabulary = _read(known)
            residency = self.load_on_engine(known.name, vocabulary)
        except VocabularyError as error:
            with self.changing(known.name):
                if self.known.get(known.name) is known:
                    self.failures[known.name] = str(error)
                    logger.error("vocabulary %s cannot be loaded: %s", known.name, error)
            raise
        if residency.fallback_reason:
            logger.warning("vocabulary %s: %s", known.name, residency.fallback_reason)
        _ = vocabulary.unknown_id  # Computed in this thread: slow.
        with self.changing(known.name):
            config = self.configs.get(known.name)
            entry = LoadedVocabulary(known.name, vocabulary, residency, config)
            if self.known.get(known.name) is known:
                self.entries[known.name] = entry
                self.failures.pop(known.name, None)
        self.evict(vocabulary.digest)
        return entry

    def load_on_engine(self, name: str, vocabulary: Vocabulary) -> Residency:
        """Load a vocabulary on the engine; convert tokenizer library errors to VocabularyError."""
        try:
            return self.engine.load(vocabulary, name in self._find_pinned())
        except VocabularyError:
            raise
        except BaseException as error:
            reraise_unless_failure(error)
            level = logging.ERROR if isinstance(error, Exception) else logging.WARNING
            logger.log(level, "the engine broke on %s", vocabulary.digest, exc_info=error)
            message = f"the tokenizer library fails on this vocabulary: {error}"
            raise VocabularyError.at("vocabulary", message) from error

    def _find_pinned(self) -> set[str]:
        """Return the own names of the vocabularies that are never evicted from the GPU."""
        return {self.aliases[name] if self._is_alias(name) else name for name in self._pinned}

    def put(
        self,
        name: str,
        vocabulary: Vocabulary,
        replace: bool,
        config: TokenizerConfig | None = None,
        notes: tuple[str, ...] = (),
    ) -> tuple[LoadedVocabulary, bool]:
        """Register a vocabulary with its configuration and notes; slow, so call it in a thread.

        The name may be an alias if it already refers to the same vocabulary.

        Returns:
            The entry, and whether anything changed (False: the name referred to this vocabulary
            before).

        Raises:
            ServiceError: the name is invalid, in use or built in, or there are too many names.
            VocabularyError: no encoder supports the vocabulary, or a regular expression is too
                slow.
        """
        name = self._resolve_upload(name, vocabulary)
        entry = self._find_same(name, vocabulary)
        if entry is not None:
            if not self.find(name).builtin:
                entry = self._keep_rest(entry, config, notes)
            return entry, False
        self.check_free(name, vocabulary, replace)
        read = make_reader(self.store, name) if self.store.is_kept else lambda: vocabulary
        known = RegisteredVocabulary(name, "uploaded", "", False, read, notes)
        refuse_slow_patterns(vocabulary.costs.patterns, self.settings.pattern_us_per_byte)
        residency = self.load_on_engine(name, vocabulary)
        with self.changing(name):
            self.check_free(name, vocabulary, replace)
            is_new = name not in self.known
            self._keep(name, vocabulary, config, notes)
            entry = LoadedVocabulary(name, vocabulary, residency, config)
            self.known[name], self.entries[name] = known, entry
            self.failures.pop(name, None)
        if is_new:
            self.follow_aliases()  # The store may have some of this name.
        self.evict(vocabulary.digest)
        return entry, True

    def _resolve_upload(self, name: str, vocabulary: Vocabulary) -> str:
        """Return the own name if `name` is an alias of the same vocabulary; otherwise `name`."""
        meant = self.known.get(self.aliases[name]) if self._is_alias(name) else None
        with contextlib.suppress(VocabularyError):  # A damaged file cannot be equal.
            if meant is not None and self._find_digest(meant) == vocabulary.digest:
                return meant.name
        return name

    def _find_same(self, name: str, vocabulary: Vocabulary) -> LoadedVocabulary | None:
        """Return the entry of a name that refers to a vocabulary already; load it if needed."""
        known = self.known.get(name)
        with contextlib.suppress(VocabularyError):  # A damaged file cannot be equal.
            if known is not None and self._find_digest(known) == vocabulary.digest:
                return self.entries.get(name) or self.load(known)
        return None

    def _keep_rest(
        self, entry: LoadedVocabulary, config: TokenizerConfig | None, notes: tuple[str, ...]
    ) -> LoadedVocabulary:
        """Store the notes of a loaded vocabulary, and its configuration if there is one.

        Returns:
            The entry with the configuration.
        """
        name = entry.name
        with self.changing(name), disk_errors():
            if config is not None:
                self.configs.put(name, config)
                before, entry = entry, replace_fields(entry, config=config)
                if self.entries.get(name) is before:
                    self.entries[name] = entry
            known = self.known.get(name)
            if known is not None and known.notes != notes:
                write_notes(self.store, name, notes)
                self.known[name] = replace_fields(known, notes=notes)
        return entry

    def _keep(
        self,
        name: str,
        vocabulary: Vocabulary,
        config: TokenizerConfig | None,
        notes: tuple[str, ...],
    ) -> None:
        """Write the vocabulary, its configuration and its notes to the store: all or none."""
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
        """Evict least recently used vocabularies until the others fit `loaded_vocabulary_bytes`.

        If an accepted request still needs one of them, the engine loads it again.

        Args:
            newest: the digest of a vocabulary that is not evicted.
        """
        digests = {name: entry.vocabulary.digest for name, entry in list(self.entries.items())}
        kept = {newest} | {digests[name] for name in digests.keys() & self._find_pinned()}
        max_bytes = self.settings.loaded_vocabulary_bytes
        for digest in choose_evicted(self.engine.holdings(), kept, max_bytes):
            with self._change:
                names = [n for n, e in self.entries.items() if e.vocabulary.digest == digest]
                for name in names:
                    del self.entries[name]
                self.changes.note(*names)
                self.engine.unload(digest)
            logger.info("evicted %s (%s)", ", ".join(names) or "a replaced vocabulary", digest)

    def check_free(self, name: str, vocabulary: Vocabulary | None, replace: bool) -> None:
        """Check that a name may be given to a vocabulary.

        Args:
            name: the name.
            vocabulary: the vocabulary; None if it does not exist yet, as that of a training job.
            replace: whether the name may belong to another uploaded vocabulary now.

        Raises:
            ServiceError: the name is invalid, in use or built in, or there are too many names.
        """
        check_name(name)
        if self._is_alias(name):
            message = f"{name} is an alias of {self.aliases[name]}"
            raise NameTaken(f"{message}; replace that vocabulary, or remove the alias", "/name")
        known = self.known.get(name)
        if known is None:
            if (other := name + DECODE_SUFFIX) in self.known:  # From an older store.
                message = (
                    f"under /v2, {other} would be the decoder of {name} and an existing vocabulary"
                )
                raise NameTaken(f"{message}; delete it first", "/name")
            if len(self.known) >= (limit := self.settings.max_vocabularies):
                raise TooLarge(
                    f"there are already {limit} vocabularies (setting max_vocabularies)", "/name"
                )
            return
        if known.builtin:
            raise BuiltinProtected(f"{name} is built in; choose another name", "/name")
        if replace:
            return
        meant = "another vocabulary"
        try:
            meant = self._find_digest(known) if vocabulary is not None else meant
        except VocabularyError as error:
            if self.known.get(name) is not known:  # Deleted or replaced while it was read.
                return self.check_free(name, vocabulary, replace)
            meant = f"one that cannot be read ({error})"
        if vocabulary is None or meant != vocabulary.digest:
            raise NameTaken(
                f"{name} is already the name of {meant}; replace=true replaces it", "/name"
            )

    def delete(self, name: str) -> None:
        """Delete a vocabulary, its file and the aliases that requests added.

        Raises:
            UnknownVocabulary: no vocabulary has this name.
            AliasGiven: the name is an alias.
            BuiltinProtected: the vocabulary is built in.
        """
        known = self.find(name, "/name")
        if known.name != name:
            message = f"{name} is an alias of {known.name}; delete that vocabulary, or the alias"
            raise AliasGiven(message, "/name")
        if known.builtin:
            raise BuiltinProtected(f"{name} is built in and cannot be deleted", "/name")
        with self.changing(name):
            self.changes.note(*self._aliases.delete_of(name))
            with disk_errors():
                self.store.remove(name + SUFFIX)
                self.configs.put(name, None)
                write_notes(self.store, name, ())
            for named in (self.known, self.entries, self.failures):
                named.pop(name, None)

    def put_alias(self, alias: str, name: str, replace: bool) -> tuple[str, bool]:
        """Add an alias of a vocabulary; return the own name, and whether anything changed.

        Raises:
            ServiceError: no vocabulary has this name, the alias is invalid or in use, or there are
                too many aliases.
        """
        with self.changing(alias):
            own = self.find(name).name
            self.check_alias(alias, own, replace, "/alias")
            return own, self._aliases.put(alias, own)

    def follow_aliases(self) -> list[str]:
        """Apply the aliases in the store; return those that were added, changed or removed."""
        with self._change:
            changed = self._aliases.follow_store(self.known)
            self.changes.note(*changed)
        return changed

    def check_alias(self, alias: str, own: str, replace: bool, where: str) -> None:
        """Check that a request may add an alias of a vocabulary, which need not exist yet.

        Raises:
            ServiceError: the alias is invalid or in use, or there are too many aliases.
        """
        if alias in self.known and alias != own:
            raise NameTaken(f"{alias} is the name of a vocabulary", where)
        self._aliases.check(alias, own, replace, where)

    def delete_alias(self, alias: str) -> None:
        """Delete an alias.

        Raises:
            ServiceError: there is no such alias, or the setting `aliases` defines it.
        """
        with self.changing(alias):
            self._aliases.delete(alias)

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """Hold the lock while the block changes a name, then record the change."""
        with self._change:
            try:
                yield
            finally:
                self.changes.note(name)

    def _is_alias(self, name: str) -> bool:
        return name not in self.known and name in self.aliases

    def unload(self, name: str) -> None:
        """Remove a vocabulary from the engine; its next use loads it again."""
        own = self.find(name).name
        with self.changing(own):
            self.entries.pop(own, None)

    def forget_unused(self, digest: str) -> None:
        """Drop a vocabulary from the engine if no loaded entry uses it any more."""
        with self._change:
            if all(entry.vocabulary.digest != digest for entry in self.entries.values()):
                self.engine.unload(digest)

    def residency(self, entry: LoadedVocabulary) -> Residency:
        """Return where the engine stores a vocabulary now, which changes with evictions."""
        return self.engine.residency(entry.vocabulary.digest) or entry.residency

    def _find_digest(self, known: RegisteredVocabulary) -> str:
        """Return the digest of a vocabulary; read the vocabulary if it is not loaded.

        Raises:
            VocabularyError: its file is damaged.
        """
        entry = self.entries.get(known.name)
        return _read(known).digest if entry is None else entry.vocabulary.digest


def _read(known: RegisteredVocabulary) -> Vocabulary:
    assert known.read is not None, "this process reads all vocabularies that it knows"
    return known.read()
