"""Passes bodies that are too large for a message to the engine process in a file.

    front end   body ─► locked file ─► its path in a message ─► engine process reads the file

The file is removed when the request is answered. If a front end is killed before that, the engine
process removes the file at its next start, as no process holds its lock any more. Without a store
the supervisor removes it with its temporary folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.apis.native.training_upload import gather_pieces, max_upload_bytes
from service.core.errors import TooManyJobs, disk_errors
from service.core.settings import Settings
from service.http.body.request_body import body_pieces
from service.training.job_folder import UPLOAD_PREFIX

if TYPE_CHECKING:
    from starlette.types import Receive

PIECE_BYTES = 1 << 20


class Spool:
    """Writes the uploads of a front end's training jobs to files, one at a time.

    Args:
        settings: the limits, and the folder of the store.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_busy = False

    @asynccontextmanager
    async def write_body(self, receive: Receive) -> AsyncIterator[Path]:
        """Write a body to a file, which is removed at the end of the block.

        Raises:
            TooManyJobs: another upload is in progress.
            TooLarge, BodyTimeout, ClientGone: see `body_pieces`.
            NoSpace: the disk is full.
        """
        if self._is_busy:
            raise TooManyJobs("another upload of a training job is in progress; try again later")
        settings = self._settings
        folder = None if settings.store_dir is None else settings.store_dir / "training"
        self._is_busy = True
        try:
            with disk_errors():
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                file = tempfile.NamedTemporaryFile(dir=folder, prefix=UPLOAD_PREFIX)
            with file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                limit, idle_s = max_upload_bytes(settings), settings.stream_idle_timeout_s
                pieces = body_pieces(receive, None, limit, "max_corpus_bytes", idle_s)
                with disk_errors():
                    async for data in gather_pieces(pieces):
                        await asyncio.to_thread(file.write, data)
                    file.flush()
                yield Path(file.name)
        finally:
            self._is_busy = False


def make_file_receive(path: Path) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Make an ASGI `receive` that returns a file's content."""
    file = open(path, "rb")

    async def receive() -> dict[str, Any]:
        if file.closed:  # The caller waits for a disconnect; the front end cancels the call then.
            await asyncio.Future()
        data = await asyncio.to_thread(file.read, PIECE_BYTES)
        if not data:
            file.close()
        return {"type": "http.request", "body": data, "more_body": bool(data)}

    return receive
