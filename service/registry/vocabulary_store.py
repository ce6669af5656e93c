"""Stores uploaded vocabularies in a folder or an object store, which several services may share.

    NAME.vocabulary     the vocabulary
    NAME.config.json    its special tokens and chat templates
    NAME.notes.json     the settings in its files that the service ignores
    aliases.json        the aliases of all vocabularies

A slash in a vocabulary's name becomes %2F in the file name. If no folder or URL is set, uploads are
lost at a restart.
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
"""Seconds until a later change of a folder surely changes its modification time: some file systems
record it in steps of two seconds."""
ABANDONED_S = 24 * 3600.0
"""The age of partial files that are abandoned."""
UNLISTED = "not listed since it was written"


class VocabularyStore:
    """The files of uploaded vocabularies, and the versions of them that this service knows.

    Names of files may contain slashes.

    Args:
        files: the folder or object store; None: nothing is stored.

    Raises:
        OSError: the files cannot be listed.
    """

    def __init__(self, files: Files | None) -> None:
        self._files = files
        self._versions: dict[str, Hashable] = {}
        self._changed_at: int | None = None
        self._unchanged_since = 0.0
        self._is_settled = False
        self._noting = threading.Lock()  # Guards `_versions` during writes.
        self.find_changed()

    @property
    def is_kept(self) -> bool:
        """Whether uploads survive a restart."""
        return self._files is not None

    def names(self, suffix: str) -> list[str]:
        """Return the names, without the suffix, of the files that `find_changed` found last."""
        found = sorted(name for name in self._versions if name.endswith(suffix))
        return [_unquote(name).removesuffix(suffix) for name in found]

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: there is no file of this name, or nothing is stored.
            OSError: the file cannot be read.
        """
        if self._files is None:
            raise FileNotFoundError(name)
        return self._files.read(_quote(name))

    def read_all(self, suffix: str) -> Iterator[tuple[str, bytes | OSError]]:
        """Read all files with a suffix; yield their names without it, and their contents."""
        if self._files is None:
            return
        names = [_quote(name + suffix) for name in self.names(suffix)]
        for name, content in self._files.read_all(names):
            yield _unquote(name).removesuffix(suffix), content

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically: after a crash it has the old or the new content."""
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
        """Return whether a file existed at the last `find_changed`, or was written since."""
        return _quote(name) in self._versions

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the free and the total bytes of the disk; None if unknown."""
        return None if self._files is None else self._files.disk_bytes()

    def find_changed(self) -> set[str]:
        """Return the files that other services have written or removed since the last call.

        The result may contain files that have not changed.

        Raises:
            OSError: the files cannot be listed.
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
                    continue  # Written here after the listing; the next one contains it.
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
        """Make `find_changed` return a file again, even if it is removed before."""
        with self._noting:
            self._versions[_quote(name)] = UNLISTED
        self._is_settled = False


def _quote(name: str) -> str:
    return name.replace("/", SLASH)


def _unquote(name: str) -> str:
    return name.replace(SLASH, "/")


def open_store(settings: Settings, *, makes_folder: bool = True) -> VocabularyStore:
    """Open the store of the settings.

    Args:
        settings: the settings of the service.
        makes_folder: create the folder if it is missing; otherwise a missing folder counts as
            empty.

    Raises:
        ValueError: the folder or object store cannot be created or read.
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
        for path in folder.iterdir():
            if path.name.endswith((*SUFFIXES, ALIASES_FILE)) and not path.is_file():
                logger.warning("store: %s is not used: it is not a file", path.name)
    except OSError as error:
        raise ValueError(f"{PREFIX}STORE_DIR: {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        logger.warning("store: %s cannot be written; uploads are refused", folder)
    return store


def _remove_partial_files(folder: Path) -> None:
    """Remove abandoned partial files, but not those that another service may be writing."""
    for path in folder.glob(f".*{PARTIAL}"):
        with suppress(OSError):
            if time() - path.stat().st_mtime > ABANDONED_S:
                path.unlink()


def read_notes(store: VocabularyStore, name: str) -> tuple[str, ...]:
    """Read the notes on a vocabulary; log damaged ones and return none."""
    try:
        return tuple(map(str, json.loads(strip_checksum(store.read(name + NOTES_SUFFIX)))))
    except FileNotFoundError:
        return ()
    except (VocabularyError, ValueError, OSError) as error:
        logger.error("store: %s%s is not used: %s", name, NOTES_SUFFIX, error)
        return ()


def write_notes(store: VocabularyStore, name: str, notes: tuple[str, ...]) -> None:
    """Write the notes on a vocabulary; remove the file if there are none."""
    if notes:
        store.write(name + NOTES_SUFFIX, add_checksum(json.dumps(notes).encode()))
    else:
        store.remove(name + NOTES_SUFFIX)


def make_reader(store: VocabularyStore, name: str) -> Callable[[], Vocabulary]:
    """Return a function that reads a vocabulary from the store.

    The function raises VocabularyError if the file is damaged or cannot be read.
    """

    def read() -> Vocabulary:
        try:
            return read_canonical(strip_checksum(store.read(name + SUFFIX)))
        except OSError as error:  # For example, the vocabulary was deleted.
            place = f"{name}{SUFFIX}"
            raise VocabularyError.at(place, f"cannot be read: {error.strerror}") from error

    return read


def read_stored(store: VocabularyStore, name: str) -> RegisteredVocabulary:
    """Describe a vocabulary of the store, whose file is read at its first use."""
    notes = read_notes(store, name)
    return RegisteredVocabulary(name, "uploaded", "", False, make_reader(store, name), notes)
