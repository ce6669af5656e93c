"""Log lines as text or as JSON, each with the id of the request that it belongs to.

No line has any input: lengths, codes and digests only. What an exception says may hold one
(`invalid literal for int(): 'my secret'`), so that of exceptions only places and kinds are written.
"""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson
from typing_extensions import override

from service.core.context_vars import REQUEST_ID
from service.core.settings import Settings


def fields(**values: object) -> dict[str, Any]:
    """What a line says beside its message, for `extra`."""
    return {"fields": values}


class Wordless(logging.Formatter):
    """Lines in which exceptions say nothing."""

    def format(self, record: logging.LogRecord) -> str:
        """A line; what another handler's formatter made of the exception is not taken over."""
        record.exc_text = None
        try:
            return super().format(record)
        finally:
            record.exc_text = None

    def formatException(self, ei: Any) -> str:
        """The stack and the kind of an exception, of what caused it first."""
        return "".join(_places(ei[1])).rstrip()


def _places(error: BaseException | None) -> list[str]:
    if error is None:
        return []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = _places(cause)
    lines += traceback.format_tb(error.__traceback__)
    lines.append(f"{type(error).__module__}.{type(error).__qualname__}\n")
    for part in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        lines += _places(part)
    return lines


class TextLines(Wordless):
    """Lines for people: the message, then ``name=value``; of a process where there are several."""

    def __init__(self, process: str = "") -> None:
        place = f"{process} " if process else ""
        super().__init__(f"%(asctime)s %(levelname)s {place}%(name)s: %(message)s")

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        values = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        return f"{super().formatMessage(record)} {values}".rstrip()


class JsonLines(Wordless):
    """One JSON object a line: time, level, logger, message, error, and what else the line says."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = {"process": process} if process else {}

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    values: dict[str, Any] = getattr(record, "fields", {})
    request_id = REQUEST_ID.get()
    return {"request_id": request_id, **values} if request_id else values


def configure(settings: Settings, process: str = "") -> None:
    """Write log lines to stderr, each with the name of its process where there are several."""
    level = settings.log_level.upper()
    form = JsonLines(process) if settings.log_format == "json" else TextLines(process)
    handler = logging.StreamHandler()
    handler.setFormatter(form)
    logging.basicConfig(level=level, handlers=[handler])
    # uvicorn's own lines about starting and stopping say nothing that ours do not.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLevelName(level)))
