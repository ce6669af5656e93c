"""Applies the changes that other services make in a shared store.

    another service            this service, every `store_poll_s` seconds
    writes NAME.vocabulary ─►  not loaded here: the next use reads the new file
                               loaded here: reads it, loads it on the engine, then replaces it
    removes it             ─►  deletes the name
    writes aliases.json    ─►  reads the aliases

Files that this service has written itself are ignored. A name refers to its old vocabulary until
the new one is ready, and keeps it if the new file is damaged. Reading a file is retried if it
fails.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from dataclasses import dataclass, field, replace

from service.registry.entries import LoadedVocabulary
from service.registry.names import find_name_fault
from service.registry.registry import Registry
from service.registry.vocabulary_store import SUFFIX, SUFFIXES, read_stored
from vocabularies.errors import VocabularyError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Followed:
    """The changes that were applied.

    Attributes:
        names: the names and aliases that refer to something else now.
        deleted: the names that no longer exist.
        old_digests: the digests of the vocabularies that were replaced or deleted.
    """

    names: set[str] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    old_digests: list[str] = field(default_factory=list)


class StoreFollower:
    """Applies changes of the store to a registry; only one thread at a time may call it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def follow(self) -> Followed:
        """Apply all changes since the last call; slow, so call it in a thread.

        Raises:
            OSError: the store cannot be read.
        """
        files = self._store.find_changed()
        names = {
            file.removesuffix(suffix)
            for file in files
            for suffix in SUFFIXES
            if file.endswith(suffix)
        }
        followed, stored = Followed(), set(self._store.names(SUFFIX))
        for name in sorted(names):
            self._follow(name, stored, followed)
        if files:
            self._follow_aliases(followed)
        return followed

    def _follow(self, name: str, stored: Container[str], followed: Followed) -> None:
        known = self._registry.known.get(name)
        if find_name_fault(name) or (known is not None and known.builtin):
            logger.warning("store: %s%s is not used: its name is invalid or taken", name, SUFFIX)
        elif name in stored:
            self._take_over(name, followed)
        elif known is not None:
            self._forget(name, followed)

    def _take_over(self, name: str, followed: Followed) -> None:
        """Let a name refer to the vocabulary in the store."""
        registry, store = self._registry, self._store
        known, before = read_stored(store, name), registry.entries.get(name)
        entry = None
        if before is not None:
            assert known.read is not None
            try:
                vocabulary = known.read()
                entry = before
                if vocabulary.digest != before.vocabulary.digest:
                    residency = registry.load_on_engine(name, vocabulary)
                    entry = LoadedVocabulary(name, vocabulary, residency)
                    _ = vocabulary.unknown_id  # Computed in this thread: slow.
            except VocabularyError as error:
                logger.error("store: %s%s is not used: %s", name, SUFFIX, error)
                if isinstance(error.__cause__, OSError):  # For example, a network is down.
                    store.forget_version(name + SUFFIX)
                return
        with registry.changing(name):
            if registry.entries.get(name) is not before:  # A request has loaded or replaced it.
                store.forget_version(name + SUFFIX)
                return
            registry.known[name] = known
            registry.failures.pop(name, None)
            registry.configs.read(name)
            if entry is not None:
                entry = replace(entry, config=registry.configs.get(name))
                registry.entries[name] = entry
        followed.names.add(name)
        if before is not None and entry is not None and entry.vocabulary is not before.vocabulary:
            followed.old_digests.append(before.vocabulary.digest)
            registry.evict(entry.vocabulary.digest)
        logger.info(
            "vocabulary %s was changed by another service%s",
            name,
            f": it is {entry.vocabulary.digest}" if entry is not None else "",
        )

    def _forget(self, name: str, followed: Followed) -> None:
        registry = self._registry
        with registry.changing(name):
            if self._store.has(name + SUFFIX):  # A request has registered it again.
                return
            before = registry.entries.get(name)
            for named in (registry.known, registry.entries, registry.failures):
                named.pop(name, None)
            registry.configs.read(name)
        followed.names.add(name)
        followed.deleted.append(name)
        if before is not None:
            followed.old_digests.append(before.vocabulary.digest)
        logger.info("vocabulary %s was deleted by another service", name)

    def _follow_aliases(self, followed: Followed) -> None:
        changed = self._registry.follow_aliases()
        followed.names.update(changed)
        for alias in changed:
            own = self._registry.aliases.get(alias)
            meaning = "stands for nothing" if own is None else f"stands for {own}"
            logger.info("the alias %s %s, by another service", alias, meaning)
