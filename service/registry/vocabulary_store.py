"""Keeps uploaded vocabularies in a folder, which several services may share.

    NAME.vocabulary     the vocabulary
    NAME.config.json    its special tokens and chat templates
    NAME.notes.json     what its files say of ids and is not followed
    aliases.json        other names of all vocabularies

Each file is written whole and renamed to its place, so that no other service reads a part of one.
Without a folder a restart forgets all uploads.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from service.core.settings import PREFIX
from service.registry.entries import RegisteredVocabulary
from service.runtime.atomic_files import SLASH, FileVersion, Store
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import add_checksum, read_canonical, strip_checksum
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
SUFFIX = ".vocabulary"
CONFIG_SUFFIX = ".config.json"
NOTES_SUFFIX = ".notes.json"
ALIASES_FILE = "aliases.json"
SUFFIXES = (SUFFIX, CONFIG_SUFFIX, NOTES_SUFFIX)
SETTLED_S = 3.0
"""Seconds after which a later change of a folder changes its time: some file systems count in steps
of two seconds."""


@dataclass(slots=True)
class _Seen:
    """What a service knows of the folder.

    Attributes:
        files: the versions of its files by name, as it read or wrote them.
        folder: when the folder was changed, by the clock of the file system.
        since: since when that has been so, by the clock of this process.
    """

    files: dict[str, FileVersion] = field(default_factory=dict)
    folder: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class VocabularyStore(Store):
    """The folder of uploaded vocabularies, and the state of its files for this service."""

    seen: _Seen = field(default_factory=_Seen, compare=False)

    def write(self, name: str, content: bytes) -> FileVersion | None:
        """Write a file so that a crash leaves either the old or the new one, whole."""
        # Without arguments super() fails in a dataclass with slots, which is made twice.
        version = Store.write(self, name, content)
        if version is not None:
            self.seen.files[name.replace("/", SLASH)] = version
        return version

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        Store.remove(self, name)
        self.seen.files.pop(name.replace("/", SLASH), None)

    def note_version(self, name: str) -> bool:
        """Note the version of a file; return whether another service has written or removed it.

        Raises:
            OSError: the folder cannot be read.
        """
        path = self.path(name)
        if path is None:
            return False
        files, before = self.seen.files, self.seen.files.get(path.name)
        try:
            files[path.name] = version = FileVersion.of(path.stat())
        except FileNotFoundError:
            files.pop(path.name, None)
            return before is not None
        return version != before

    def forget_version(self, name: str) -> None:
        """Let `find_changed` return a file again."""
        self.seen.files.pop(name.replace("/", SLASH), None)
        self.seen.since = monotonic()

    def find_changed(self) -> set[str]:
        """Return the files that other services have written or removed since the last call.

        A file may be among them that has not changed.

        Raises:
            OSError: the folder cannot be read.
        """
        if self.folder is None:
            return set()
        seen, changed_ns = self.seen, os.stat(self.folder).st_mtime_ns
        if changed_ns != seen.folder:
            seen.folder, seen.since = changed_ns, monotonic()
        elif monotonic() - seen.since > SETTLED_S:
            return set()
        files = self._list_versions()
        before = dict(seen.files)
        names = {
            name for name in files.keys() | before.keys() if files.get(name) != before.get(name)
        }
        for name in names:
            if name in files:
                seen.files[name] = files[name]
            else:
                seen.files.pop(name, None)
        return {name.replace(SLASH, "/") for name in names}

    def _list_versions(self) -> dict[str, FileVersion]:
        versions = {}
        with os.scandir(self.folder) as listed:
            for entry in listed:
                if entry.name == ALIASES_FILE or entry.name.endswith(SUFFIXES):
                    with contextlib.suppress(FileNotFoundError):  # Removed meanwhile.
                        versions[entry.name] = FileVersion.of(entry.stat())
        return versions


def open_store(folder: Path | None) -> VocabularyStore:
    """Open the store in a folder, and make the folder if needed.

    Raises:
        ValueError: the folder cannot be made or read.
    """
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            next(folder.iterdir(), None)
        except OSError as error:
            raise ValueError(f"{PREFIX}STORE_DIR: {folder}: {error.strerror}") from error
        if not os.access(folder, os.W_OK):
            logger.warning("store: %s cannot be written; uploads are refused", folder)
    store = VocabularyStore(folder)
    store.find_changed()  # What changes while the files are read is found by the next call.
    return store


def read_notes(store: Store, name: str) -> tuple[str, ...]:
    """Read the notes on a vocabulary; none if they are damaged, which the log says."""
    path = store.path(name + NOTES_SUFFIX)
    if path is None or not path.exists():
        return ()
    try:
        return tuple(map(str, json.loads(strip_checksum(path.read_bytes()))))
    except (VocabularyError, ValueError, OSError) as error:
        logger.error("store: %s is not used: %s", path.name, error)
        return ()


def write_notes(store: Store, name: str, notes: tuple[str, ...]) -> None:
    """Write the notes on a vocabulary; none remove the file."""
    if notes:
        store.write(name + NOTES_SUFFIX, add_checksum(json.dumps(notes).encode()))
    else:
        store.remove(name + NOTES_SUFFIX)


def make_reader(path: Path) -> Callable[[], Vocabulary]:
    """Make the function that reads a vocabulary from the store.

    The function raises VocabularyError if the file is damaged or cannot be read.
    """

    def read() -> Vocabulary:
        try:
            return read_canonical(strip_checksum(path.read_bytes()))
        except OSError as error:  # Such as when the vocabulary is deleted meanwhile.
            raise VocabularyError.at(path.name, f"cannot be read: {error.strerror}") from error

    return read


def read_stored(store: Store, name: str, path: Path) -> RegisteredVocabulary:
    """Describe a vocabulary of the store, whose file is read when it is used."""
    notes = read_notes(store, name)
    return RegisteredVocabulary(name, "uploaded", "", False, make_reader(path), notes)
