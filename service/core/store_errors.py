"""What is refused because of the disk; part of the family in errors.py."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from service.core.errors import ServiceError

logger = logging.getLogger(__name__)
FULL = (errno.ENOSPC, errno.EDQUOT)
BROKEN = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOENT, errno.ENOTDIR)


class NoSpace(ServiceError):
    """The disk is full."""

    status, code, headers = 507, "no_space", ((b"retry-after", b"60"),)


class StoreFailed(ServiceError):
    """What is kept on disk cannot be written, as where its folder is read-only."""

    status, code = 500, "store_failed"


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raises NoSpace where the block finds the disk full, StoreFailed where it cannot write."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            logger.error("the disk of the service is full")
            raise NoSpace("the disk of the service is full") from error
        if error.errno in BROKEN:
            logger.error("the store cannot be written: %s", error)
            raise StoreFailed(f"the store cannot be written: {error.strerror}") from error
        raise
