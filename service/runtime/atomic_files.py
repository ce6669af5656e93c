"""The folder where uploads are kept; without one they live in memory and a restart forgets them."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from service.core.settings import PREFIX
from vocabularies.errors import VocabularyError
from vocabularies.model import canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


def open_store(folder: Path | None) -> Store:
    """The store of a folder, which is made if need be.

    Raises:
        ValueError: it cannot be made, or read.
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


def reader_of(path: Path) -> Callable[[], Vocabulary]:
    """What reads a vocabulary that the store keeps.

    It raises VocabularyError: the file is damaged, or cannot be read.
    """

    def read() -> Vocabulary:
        try:
            return canonical.from_bytes(canonical.unsealed(path.read_bytes()))
        except OSError as error:  # Such as for a name that is being deleted.
            raise VocabularyError.at(path.name, f"cannot be read: {error.strerror}") from error

    return read


@dataclass(frozen=True, slots=True)
class Store:
    """Files by name in one folder, or in none."""

    folder: Path | None

    def path(self, name: str) -> Path | None:
        """Where a file of this name is or would be; None where nothing is kept."""
        return None if self.folder is None else self.folder / name

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that a crash leaves the old one or the new one, whole."""
        if self.folder is None:
            return
        descriptor, temporary = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.folder / name)
        except BaseException:  # What was begun would make a full disk fuller.
            os.unlink(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.folder is not None:
            (self.folder / name).unlink(missing_ok=True)

    def files(self, suffix: str) -> Iterator[tuple[str, Path]]:
        """The files whose names end so, by what stands before it."""
        if self.folder is None:
            return
        for path in sorted(self.folder.glob("*" + suffix)):
            yield path.name.removesuffix(suffix), path
