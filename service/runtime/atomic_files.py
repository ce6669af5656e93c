"""Files in one folder, each written so that a crash leaves the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


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
