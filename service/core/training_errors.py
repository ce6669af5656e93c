"""What is refused of training jobs; part of the family in errors.py."""

from __future__ import annotations

from service.core.errors import ServiceError


class UnknownJob(ServiceError):
    """No training job has this id."""

    status, code = 404, "unknown_job"


class WrongState(ServiceError):
    """A training job is in no state in which this can be done."""

    status, code = 409, "wrong_state"


class TooManyJobs(ServiceError):
    """Too many training jobs have not ended."""

    status, code, headers = 429, "too_many_jobs", ((b"retry-after", b"60"),)
