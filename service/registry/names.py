"""Defines valid names of vocabularies, and manages their aliases.

A name consists of one or more words, separated by slashes, as in Qwen/Qwen3-8B. No word is `.` or
`..`. After a slash, no word may be one that ends a path of the API, so that each path that contains
a name has only one meaning.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Container

from service.core.errors import (
    AliasProtected,
    InvalidRequest,
    NameTaken,
    TooLarge,
    UnknownVocabulary,
    disk_errors,
)
from service.core.settings import PREFIX
from service.registry.entries import DECODE_SUFFIX
from service.registry.vocabulary_store import ALIASES_FILE, VocabularyStore
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import add_checksum, strip_checksum

logger = logging.getLogger(__name__)
WORD = r"[A-Za-z0-9][A-Za-z0-9._:-]*"
NAME = re.compile(rf"{WORD}(/{WORD})*")
MAX_CHARACTERS = 100
PATH_WORDS = frozenset(
    ("config", "infer", "load", "ready", "stats", "unload", "verify", "versions")
)
"""Words of the API's paths that follow a name."""


def find_name_fault(name: str) -> str:
    """Return why a name is invalid for a vocabulary; "" if it is valid."""
    if len(name) > MAX_CHARACTERS or not NAME.fullmatch(name):
        return (
            f"a name has 1 to {MAX_CHARACTERS} characters: words of letters, digits, '.', '_', ':' "
            "and '-', which begin with a letter or digit and are separated by slashes"
        )
    words = name.split("/")[1:]
    if used := PATH_WORDS.intersection(words):
        return (
            f"'{min(used)}' after a slash is reserved for the paths of the API; choose another name"
        )
    return ""


def find_decoder_fault(name: str) -> str:
    """Return why a new name that ends with `.decode` is refused; "" for all other names.

    Older stores may contain vocabularies with such names.
    """
    if not name.endswith(DECODE_SUFFIX):
        return ""
    meant = f"the decoder of {name.removesuffix(DECODE_SUFFIX)}"
    return f"under /v2 this name means {meant}; a name must not end in {DECODE_SUFFIX}"


def check_name(name: str, where: str = "/name") -> None:
    """Raise InvalidRequest if a name is invalid for a new vocabulary or alias."""
    if fault := find_name_fault(name) or find_decoder_fault(name):
        raise InvalidRequest(fault, where)


def split_aliases(text: str | None) -> tuple[str, ...]:
    """Split a list of names at its commas, and check each name.

    Raises:
        InvalidRequest: a name is invalid.
    """
    names = [name.strip() for name in (text or "").split(",")]
    found = tuple(dict.fromkeys(name for name in names if name))
    for name in found:
        check_name(name, "/aliases")
    return found


def parse_aliases(setting: str) -> dict[str, str]:
    """Parse the setting `aliases` into a dictionary from aliases to the own names of vocabularies.

    Raises:
        ValueError: a part is not NAME=VOCABULARY, or a name is invalid or defined twice.
    """
    found: dict[str, str] = {}
    if setting.strip() == "none":
        return found
    for part in filter(None, map(str.strip, setting.split(","))):
        alias, equals, own = map(str.strip, part.partition("="))
        if not equals:
            raise ValueError(f"{PREFIX}ALIASES: {part} is not NAME=VOCABULARY")
        for name, fault in (
            (alias, find_name_fault(alias) or find_decoder_fault(alias)),
            (own, find_name_fault(own)),
        ):
            if fault:
                raise ValueError(f"{PREFIX}ALIASES: {name}: {fault}")
        if found.setdefault(alias, own) != own:
            raise ValueError(f"{PREFIX}ALIASES: {alias} is given for two vocabularies")
    for alias, own in found.items():
        if own in found:
            raise ValueError(f"{PREFIX}ALIASES: {alias} refers to {own}, which is an alias itself")
    return found


class Aliases:
    """The aliases of vocabularies: those of the setting `aliases`, and those that requests added.

    A file of the store contains the aliases that requests added.

    Args:
        setting: the setting `aliases`.
        store: the uploaded vocabularies.
        limit: the maximum number of aliases that requests may add.

    Attributes:
        names: a dictionary from each alias to the own name of its vocabulary; requests read it
            without a lock.

    Raises:
        ValueError: the setting is invalid.
    """

    def __init__(self, setting: str, store: VocabularyStore, limit: int) -> None:
        self._fixed = parse_aliases(setting)
        self._store = store
        self._limit = limit
        self.names: dict[str, str] = dict(self._fixed)
        self._stored: dict[str, str] = {}  # With those whose vocabulary only others know yet.

    def read_store(self, known: Container[str]) -> None:
        """Read the aliases that requests added; omit those of vocabularies that no longer exist.

        Args:
            known: the own names of all vocabularies.
        """
        for name in self._fixed:
            if name in known:
                logger.warning("%sALIASES: %s is the name of a vocabulary", PREFIX, name)
        self.follow_store(known)

    def follow_store(self, known: Container[str]) -> list[str]:
        """Apply the aliases in the store; return those that were added, changed or removed.

        Args:
            known: the own names of all vocabularies.
        """
        if not self._store.is_kept:
            return []
        try:
            stored = dict(json.loads(strip_checksum(self._store.read(ALIASES_FILE))))
        except FileNotFoundError:
            stored = {}
        except (VocabularyError, ValueError, TypeError, OSError) as error:
            logger.error("store: %s is not used: %s", ALIASES_FILE, error)
            if isinstance(error, OSError):  # For example, a network is down.
                self._store.forget_version(ALIASES_FILE)
            return []
        names = dict(self._fixed)
        self._stored = {alias: own for alias, own in stored.items() if isinstance(own, str)}
        for alias, own in self._stored.items():
            if find_name_fault(alias) or alias in known or own not in known:
                logger.warning("store: the alias %s is not used: it has no meaning", alias)
            else:
                names.setdefault(alias, own)
        before = self.names
        changed = [n for n in names.keys() | before.keys() if names.get(n) != before.get(n)]
        for alias in changed:
            if alias in names:
                before[alias] = names[alias]
            else:
                del before[alias]
        return changed

    def of(self, own: str) -> list[str]:
        """Return the aliases of a vocabulary."""
        return [alias for alias, meant in list(self.names.items()) if meant == own]

    def check(self, alias: str, own: str, replace: bool, where: str) -> None:
        """Check that a request may add an alias of a vocabulary.

        Args:
            alias: the alias.
            own: the vocabulary's own name.
            replace: whether the alias may belong to another vocabulary now.
            where: the place of the alias in the request.

        Raises:
            ServiceError: the alias is invalid or in use, or there are too many aliases.
        """
        check_name(alias, where)
        meant = self.names.get(alias)
        if meant == own:
            return
        if alias == own:
            raise NameTaken(f"{alias} is the name of the vocabulary itself", where)
        if alias in self._fixed:
            raise AliasProtected(
                f"the setting aliases makes {alias} an alias of {meant}; requests cannot change it",
                where,
            )
        if meant is not None and not replace:
            raise NameTaken(
                f"{alias} is already an alias of {meant}; replace=true redirects it", where
            )
        if meant is None and len(self.names) - len(self._fixed) >= self._limit:
            raise TooLarge(
                f"there are already {self._limit} aliases (setting max_vocabularies)", where
            )

    def put(self, alias: str, own: str) -> bool:
        """Add an alias of a vocabulary, or change it; return whether anything changed.

        The caller has called `check`.
        """
        if self.names.get(alias) == own:
            return False
        self._write(self._stored | {alias: own})
        self.names[alias] = own
        return True

    def delete(self, alias: str) -> None:
        """Delete an alias that a request added.

        Raises:
            UnknownVocabulary: there is no such alias.
            AliasProtected: the setting `aliases` defines the alias.
        """
        if alias in self._fixed:
            raise AliasProtected(
                f"the setting aliases has {alias}; requests cannot change it",
                "/alias",
            )
        if alias not in self.names and alias not in self._stored:
            raise UnknownVocabulary("there is no alias with this name", "/alias")
        self._remove([alias])

    def delete_of(self, own: str) -> list[str]:
        """Delete the aliases of a vocabulary that requests added; return them."""
        names = self._stored | self.names
        aliases = [alias for alias in names if names[alias] == own and alias not in self._fixed]
        self._remove(aliases)
        return aliases

    def _remove(self, aliases: list[str]) -> None:
        if not aliases:
            return
        self._write({name: own for name, own in self._stored.items() if name not in aliases})
        for alias in aliases:
            self.names.pop(alias, None)

    def _write(self, stored: dict[str, str]) -> None:
        with disk_errors():
            self._store.write(ALIASES_FILE, add_checksum(json.dumps(stored).encode()))
        self._stored = stored
