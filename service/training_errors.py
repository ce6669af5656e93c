"""What is refused of training jobs; part of the family in errors.py."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import ServiceError

__all__ = ["NoSpace", "TooManyJobs", "UnknownJob", "WrongState", "disk_errors"]


class UnknownJob(ServiceError):
    """No training job has this id."""

    status, code = 404, "unknown_job"


class WrongState(ServiceError):
    """A training job is in no state in which this can be done."""

    status, code = 409, "wrong_state"


class TooManyJobs(ServiceError):
    """Too many training jobs have not ended."""

    status, code, headers = 429, "too_many_jobs", ((b"retry-after", b"60"),)


class NoSpace(ServiceError):
    """The disk is full."""

    status, code, headers = 507, "no_space", ((b"retry-after", b"60"),)


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raises NoSpace where the block finds the disk full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpace("the disk of the service is full") from error
