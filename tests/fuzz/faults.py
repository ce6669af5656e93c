"""Finds faults in answers and in log lines."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from google.rpc import code_pb2

from service.http.error_responses import SHAPES
from service.observability.logging import TextLines
from tests.fuzz.inputs.messages import CANARY, Message

NO_REQUEST = b"Invalid HTTP request received."  # The parser's own words for what is no HTTP.
OURS = (code_pb2.INTERNAL, code_pb2.UNKNOWN, code_pb2.DATA_LOSS, code_pb2.UNIMPLEMENTED)
LOUD = re.compile(r"\bbug\b|^\S+ \S+ (ERROR|CRITICAL)")
KEYS = {"type", "title", "status", "detail", "code", "where"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the service.

    Attributes:
        status: of HTTP; of gRPC the number of its code, 0 for an answer.
        broken: the answer had begun and was cut off.
    """

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    broken: bool = False


class Lines(logging.Handler):
    """A log handler that keeps the formatted lines."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(TextLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Format it at once."""
        self.lines.append(self.format(record))


@contextlib.contextmanager
def logged() -> Iterator[Lines]:
    """Capture all log lines, from level DEBUG on."""
    root, handler = logging.getLogger(), Lines()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def fault_of(message: Message, answer: Answer, log: Lines) -> str:
    """Describe the fault of an answer; "" if it has none."""
    lines, log.lines = log.lines, []
    for line in lines:
        if CANARY in line:
            return f"an input is in the log: {line[:300]}"
        if LOUD.search(line) and not line.endswith("service.http.streaming_response.BrokenStream"):
            return f"the log says: {line[:3000]}"
    if message.method == "gRPC":
        return _fault_of_call(answer)
    if answer.broken:
        return ""
    if b"engine_failed" in answer.body:
        return f"the engine failed: {answer.body[:300]!r}"
    if answer.status in (499, 504):  # Nobody is there; the client's own deadline.
        return ""
    if answer.status == 503 and (b'"ready"' in answer.body or not answer.body):
        return ""
    if answer.status >= 500:
        return f"{answer.status}: {answer.body[:300]!r}"
    if answer.status >= 400:
        return _fault_of_refusal(message, answer)
    return ""


def _fault_of_call(answer: Answer) -> str:
    if answer.status in OURS:
        return f"{code_pb2.Code.Name(answer.status)}: {answer.body[:300]!r}"
    return ""


def _fault_of_refusal(message: Message, answer: Answer) -> str:
    """Return whether a refusal has the shape of its API."""
    if answer.body == NO_REQUEST:
        return ""
    try:
        document = json.loads(answer.body)
    except ValueError:
        return f"a refusal that is not JSON: {answer.status} {answer.body[:300]!r}"
    path = unquote_to_bytes(message.path.partition("?")[0]).decode(errors="replace")
    path = path.removesuffix("/")  # Routes answer with it and without.
    kind = answer.headers.get(b"content-type", b"")
    if f"{path}/".startswith("/v2/"):
        good = isinstance(document.get("error"), str) and kind == b"application/json"
    elif path in SHAPES or f"{path}/".startswith("/v1/models/"):
        good = "error" in document and kind == b"application/json"
    else:
        good = document.keys() >= KEYS and kind == b"application/problem+json"
        good = good and document["status"] == answer.status
    return "" if good else f"a refusal of another shape: {answer.status} {answer.body[:300]!r}"
