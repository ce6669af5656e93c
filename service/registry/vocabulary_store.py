"""Opens the folder of uploaded vocabularies; without one a restart forgets them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

from service.core.settings import PREFIX
from service.runtime.atomic_files import Store
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import add_checksum, read_canonical, strip_checksum
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
NOTES = ".notes.json"


def open_store(folder: Path | None) -> Store:
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
    return Store(folder)


def read_notes(store: Store, name: str) -> tuple[str, ...]:
    """Read the notes on a vocabulary; none if they are damaged, which the log says."""
    path = store.path(name + NOTES)
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
        store.write(name + NOTES, add_checksum(json.dumps(notes).encode()))
    else:
        store.remove(name + NOTES)


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
