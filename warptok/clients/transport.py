"""Defines requests and answers over HTTP, their errors, and the retry policy.

This module depends on no HTTP library; `client` and `async_client` send the requests. All calls are
idempotent, so a request may be retried even if the service may have read it before the connection
broke.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from warptok.errors import (
    DeadlinePassed,
    Fault,
    InvalidRequest,
    Unavailable,
    WarptokError,
    error_class,
)

RETRIED_STATUSES = (429, 503)
FIRST_WAIT_S = 0.1
JITTER = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: "GET" or "POST".
        path: the path, such as "/v1/encode".
        params: the query string.
        content: the body.
        headers: the content type of the body, and the type of the answer.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer.

    Attributes:
        status: the HTTP status.
        headers: the headers by name in lower case.
        content: the body.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Parse the body."""
        return orjson.loads(self.content)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Decides whether and when a failed request is retried.

    Attributes:
        retries: the largest number of retries of a request.
        max_wait_s: the longest wait before a retry; the error is raised if `Retry-After` is longer.
    """

    retries: int = 3
    max_wait_s: float = 30.0

    def wait_s(self, attempt: int, error: WarptokError) -> float | None:
        """Return the seconds until the next attempt; None: raise the error instead.

        Args:
            attempt: the number of the attempt that failed, from 0 on.
            error: the error of that attempt.
        """
        if attempt >= self.retries or not isinstance(error, Unavailable):
            return None
        is_lost = error.status is None
        if not is_lost and (error.status not in RETRIED_STATUSES or error.retry_after_s is None):
            return None
        backoff = FIRST_WAIT_S * 2**attempt * (1 + JITTER * random.random())
        wait = max(backoff, error.retry_after_s or 0.0)
        return wait if wait <= self.max_wait_s else None


def make_error(response: Response) -> WarptokError:
    """Make the error for an answer whose status is 400 or more."""
    try:
        problem = response.json()
    except orjson.JSONDecodeError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    code = str(problem.get("code", ""))
    where = str(problem.get("where", ""))
    findings = [Fault(each["where"], each["message"]) for each in problem.get("findings", ())]
    is_row = response.status == 422 and code not in REQUEST_CODES
    kind = error_class(code, response.status, is_row=is_row)
    return kind(
        str(problem.get("detail") or f"the service answered {response.status}"),
        code=code or None,
        where=where,
        findings=findings,
        status=response.status,
        request_id=response.headers.get("x-request-id", ""),
        retry_after_s=_read_seconds(response.headers.get("retry-after")),
    )


REQUEST_CODES = ("", "invalid_request", "template_failed", "vocabulary_invalid")
"""The codes with status 422 that concern a request and not one row."""


def _read_seconds(value: str | None) -> float | None:
    """Parse a Retry-After header in seconds; None: it is absent or a date."""
    return float(value) if value is not None and value.strip().isdigit() else None


def request_headers(api_key: str | None, timeout_s: float) -> dict[str, str]:
    """Return the headers that all requests of a client share: its API key and its deadline."""
    return {"x-request-timeout-ms": str(max(1, int(timeout_s * 1000))), **key_headers(api_key)}


def key_headers(api_key: str | None) -> dict[str, str]:
    """Return the header with an API key; no header without a key.

    Raises:
        InvalidRequest: no header can have the key; the message does not contain it.
    """
    if api_key is None:
        return {}
    if not (api_key.isascii() and api_key.isprintable() and api_key and " " not in api_key):
        message = "api_key is empty, or has white space or a character that is not printable ASCII"
        raise InvalidRequest(message, where="api_key")
    return {"authorization": f"Bearer {api_key}"}


def lost_connection(httpx: Any, failure: Exception, url: str) -> WarptokError:
    """Make the error for a request that received no answer."""
    if isinstance(failure, httpx.TimeoutException) and not isinstance(
        failure, httpx.ConnectTimeout | httpx.PoolTimeout
    ):
        return DeadlinePassed(f"{url} has not answered in time: {failure!r}")
    return Unavailable(f"{url} is not reached: {failure!r}")
