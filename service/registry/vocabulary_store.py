"""Keeps uploaded vocabularies in a folder or an object store, which several services may share.

    NAME.vocabulary     the vocabulary
    NAME.config.json    its special tokens and chat templates
    NAME.notes.json     what its files say of ids and is not followed
    aliases.json        other names of all vocabularies

A slash in a name is %2F in the name of a file. Without a place a restart forgets all uploads.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, time

from service.core.settings import PREFIX, Settings
from service.registry.entries import RegisteredVocabulary
from service.registry.store_files import Files, FolderFiles, ObjectFiles
from service.runtime.atomic_files import PARTIAL, SLASH
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
ABANDONED_S = 24 * 3600.0
"""The age of a partial file that no process writes any more."""
UNLISTED = "not listed since it was written"


class VocabularyStore:
    """The files of uploaded vocabularies, and which of their versions this service knows.

    Names of files may have slashes.

    Args:
        files: where they lie; None: nothing is kept.

    Raises:
        OSError: they cannot be listed.
    """

    def __init__(self, files: Files | None) -> None:
        self._files = files
        self._versions: dict[str, Hashable] = {}
        self._changed_at: int | None = None
        self._unchanged_since = 0.0
        self._is_settled = False
        self._noting = threading.Lock()  # A version that is written while others are compared.
        self.find_changed()

    @property
    def is_kept(self) -> bool:
        """Whether uploads outlive the service."""
        return self._files is not None

    def names(self, suffix: str) -> list[str]:
        """List the names, without the suffix, of the files that `find_changed` last found."""
        found = sorted(name for name in self._versions if name.endswith(suffix))
        return [_unquote(name).removesuffix(suffix) for name in found]

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: there is none of this name, or nothing is kept.
            OSError: it cannot be read.
        """
        if self._files is None:
            raise FileNotFoundError(name)
        return self._files.read(_quote(name))

    def read_all(self, suffix: str) -> Iterator[tuple[str, bytes | OSError]]:
        """Read all files with a suffix; yield their names without it, and what was read."""
        if self._files is None:
            return
        names = [_quote(name + suffix) for name in self.names(suffix)]
        for name, content in self._files.read_all(names):
            yield _unquote(name).removesuffix(suffix), content

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that a crash leaves either the old or the new one, whole."""
        if self._files is not None:
            version = self._files.write(_quote(name), content)
            with self._noting:
                self._versions[_quote(name)] = UNLISTED if version is None else version

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        if self._files is not None:
            self._files.remove(_quote(name))
            with self._noting:
                self._versions.pop(_quote(name), None)

    def has(self, name: str) -> bool:
        """Return whether a file was there when `find_changed` last looked, or is written since."""
        return _quote(name) in self._versions

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the free and all bytes of the disk; None: there is none, or it is gone."""
        return None if self._files is None else self._files.disk_bytes()

    def find_changed(self) -> set[str]:
        """Return the files that other services have written or removed since the last call.

        A file may be among them that has not changed.

        Raises:
            OSError: they cannot be listed.
        """
        files = self._files
        if files is None:
            return set()
        changed_at, now = files.changed_at(), monotonic()
        if changed_at is None or changed_at != self._changed_at:
            self._changed_at, self._unchanged_since, self._is_settled = changed_at, now, False
        elif self._is_settled:
            return set()
        before = dict(self._versions)
        found = files.list_versions((*SUFFIXES, ALIASES_FILE))
        names = found.keys() | before.keys()
        differing = [name for name in names if found.get(name) != before.get(name)]
        own = {name for name in differing if name in found and files.is_own(name)}
        changed = set()
        for name in differing:
            with self._noting:
                if self._versions.get(name) != before.get(name):
                    continue  # It was written here after the listing, and the next one has it.
                if name in found:
                    self._versions[name] = found[name]
                else:
                    del self._versions[name]
                files.forget_written(name)
            if name not in own:
                changed.add(_unquote(name))
        self._is_settled = now - self._unchanged_since > SETTLED_S
        return changed

    def forget_version(self, name: str) -> None:
        """Let `find_changed` return a file again, also if it is removed meanwhile."""
        with self._noting:
            self._versions[_quote(name)] = UNLISTED
        self._is_settled = False


def _quote(name: str) -> str:
    return name.replace("/", SLASH)


def _unquote(name: str) -> str:
    return name.replace(SLASH, "/")


def open_store(settings: Settings, *, makes_folder: bool = True) -> VocabularyStore:
    """Open the store that the settings name.

    Args:
        settings: the settings of the service.
        makes_folder: make the folder if needed; otherwise one that is missing has no files.

    Raises:
        ValueError: it cannot be made or read.
    """
    if settings.model_dir is not None:
        return VocabularyStore(None)
    if settings.store_url is not None:
        return _open_objects(settings.store_url)
    if settings.store_dir is not None and (makes_folder or settings.store_dir.exists()):
        return _open_folder(settings.store_dir)
    return VocabularyStore(None)


def _open_objects(url: str) -> VocabularyStore:
    try:
        return VocabularyStore(ObjectFiles.open(url))
    except OSError as error:
        raise ValueError(f"{PREFIX}STORE_URL: {url}: {error.strerror}") from error


def _open_folder(folder: Path) -> VocabularyStore:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        store = VocabularyStore(FolderFiles(folder))
        _remove_partial_files(folder)
    except OSError as error:
        raise ValueError(f"{PREFIX}STORE_DIR: {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        logger.warning("store: %s cannot be written; uploads are refused", folder)
    return store


def _remove_partial_files(folder: Path) -> None:
    """Remove what processes that were killed have left; another service may write a new one."""
    for path in folder.glob(f".*{PARTIAL}"):
        with suppress(OSError):
            if time() - path.stat().st_mtime > ABANDONED_S:
                path.unlink()


def read_notes(store: VocabularyStore, name: str) -> tuple[str, ...]:
    """Read the notes on a vocabulary; none if they are damaged, which the log says."""
    try:
        return tuple(map(str, json.loads(strip_checksum(store.read(name + NOTES_SUFFIX)))))
    except FileNotFoundError:
        return ()
    except (VocabularyError, ValueError, OSError) as error:
        logger.error("store: %s%s is not used: %s", name, NOTES_SUFFIX, error)
        return ()


def write_notes(store: VocabularyStore, name: str, notes: tuple[str, ...]) -> None:
    """Write the notes on a vocabulary; none remove the file."""
    if notes:
        store.write(name + NOTES_SUFFIX, add_checksum(json.dumps(notes).encode()))
    else:
        store.remove(name + NOTES_SUFFIX)


def make_reader(store: VocabularyStore, name: str) -> Callable[[], Vocabulary]:
    """Make the function that reads a vocabulary from the store.

    The function raises VocabularyError if the file is damaged or cannot be read.
    """

    def read() -> Vocabulary:
        try:
            return read_canonical(strip_checksum(store.read(name + SUFFIX)))
        except OSError as error:  # Such as when the vocabulary is deleted meanwhile.
            place = f"{name}{SUFFIX}"
            raise VocabularyError.at(place, f"cannot be read: {error.strerror}") from error

    return read


def read_stored(store: VocabularyStore, name: str) -> RegisteredVocabulary:
    """Describe a vocabulary of the store, whose file is read when it is used."""
    notes = read_notes(store, name)
    return RegisteredVocabulary(name, "uploaded", "", False, make_reader(store, name), notes)
