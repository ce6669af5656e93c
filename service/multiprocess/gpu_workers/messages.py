"""Converts the calls of a GPU worker, their results and their errors to messages, and back."""

from __future__ import annotations

from typing import Any

from gpu.errors import (
    BadHandle,
    DescendingOffsets,
    DeviceFault,
    DeviceLost,
    DeviceUnavailable,
    LaunchFailed,
    NotCovered,
    OutOfMemory,
    SharedTooSmall,
    find_lost_context,
)
from service.multiprocess.link.frames import Message
from vocabularies.batch.batch import Encoded, RowError

ANSWER, ERROR = "answer", "error"
ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        BadHandle,
        DeviceFault,
        DeviceLost,
        DeviceUnavailable,
        IndexError,
        LaunchFailed,
        NotCovered,
        OutOfMemory,
        SharedTooSmall,
        TypeError,
        ValueError,
    )
}
"""The error classes of a GPU engine that are sent by name; other errors become a RuntimeError."""


def make_encoded_message(encoded: Encoded) -> Message:
    """Make the message of a batch's ids, for `link.batch_messages.read_encoded`."""
    values: dict[str, Any] = {"engine": encoded.engine, "errors": write_errors(encoded.errors)}
    values["has_spans"] = encoded.spans is not None
    arrays = [encoded.ids, encoded.offsets]
    if encoded.spans is not None:
        arrays.append(encoded.spans)
    if encoded.num_tokens is not None and encoded.kept is not None:
        arrays += [encoded.num_tokens, encoded.kept]
    return Message(ANSWER, values, arrays)


def write_errors(errors: dict[int, RowError]) -> list[list[Any]]:
    """Write the errors of refused rows as values of a message."""
    return [[row, error.code, error.message, error.where] for row, error in errors.items()]


def read_errors(values: dict[str, Any]) -> dict[int, RowError]:
    """Read the errors of refused rows."""
    return {row: RowError(code, text, where) for row, code, text, where in values["errors"]}


def make_error_message(error: BaseException) -> Message:
    """Make the message of an error; an error that loses the CUDA context becomes DeviceLost."""
    if lost := find_lost_context(error):
        return Message(ERROR, {"kind": DeviceLost.__name__, "message": f"its context: {lost}"})
    values: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, DescendingOffsets):
        values["row"] = [error.row, error.begin, error.end]
    return Message(ERROR, values)


def read_error(values: dict[str, Any]) -> Exception:
    """Convert a message to the error that a worker raised."""
    if "row" in values:
        return DescendingOffsets(*values["row"])
    kind, message = values["kind"], values["message"]
    if kind in ERRORS:
        return ERRORS[kind](message)
    return RuntimeError(f"{kind}: {message}")
