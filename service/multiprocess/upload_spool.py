"""Bodies that are too large for a message between two processes of the service go through a file.

    front end   body ─► file, locked ─► its path in a message ─► engine process reads the file

The file goes when the request is answered; one that a killed front end has left, when the engine
process starts and finds nobody holding its lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.apis.native.training_upload import gathered, max_upload_bytes
from service.core.errors import TooManyJobs, disk_errors
from service.core.settings import Settings
from service.http.request_body import body_pieces
from service.training.job_folder import UPLOAD_PREFIX

if TYPE_CHECKING:
    from starlette.types import Receive

PIECE_BYTES = 1 << 20


class Spool:
    """Where a front end puts the uploads of training jobs, one at a time.

    Args:
        settings: the limits, and where the store is.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._is_full = settings, False

    @asynccontextmanager
    async def filled(self, receive: Receive) -> AsyncIterator[Path]:
        """A file with a whole body as it came; gone at the end of the block.

        Raises:
            TooManyJobs: another upload is on its way.
            TooLarge, BodyTimeout, ClientGone: as `body_pieces`.
            NoSpace: the disk is full.
        """
        if self._is_full:
            raise TooManyJobs("another upload of a training job is on its way")
        settings = self._settings
        folder = None if settings.store_dir is None else settings.store_dir / "training"
        self._is_full = True
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
                    async for data in gathered(pieces):
                        await asyncio.to_thread(file.write, data)
                    file.flush()
                yield Path(file.name)
        finally:
            self._is_full = False


def received_from(path: Path) -> Callable[[], Awaitable[dict[str, Any]]]:
    """An ASGI `receive` that gives a file's content."""
    file = open(path, "rb")

    async def receive() -> dict[str, Any]:
        if file.closed:  # Who waits for a client that leaves: the front end's end cancels us.
            await asyncio.Future()
        data = await asyncio.to_thread(file.read, PIECE_BYTES)
        if not data:
            file.close()
        return {"type": "http.request", "body": data, "more_body": bool(data)}

    return receive
