"""Describes inference requests and their results, and checks parameters and rows of texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from service.apis.oip.tensors import BYTES, LENGTH_BYTES, Outputs, Tensor, make_bytes_tensor
from service.batching.work import AnyResult
from service.core.call import Call
from service.core.errors import InvalidRequest, TooLarge
from service.core.json_bodies import Surrogates
from service.core.problem_details import invalid_body
from service.operations import schemas
from service.operations.arrays import check_offsets
from service.operations.context import Service
from service.operations.operation import check_rows
from service.operations.query_schemas import BatchQuery
from vocabularies.batch.batch import Batch

# Parameters that clients add automatically; they are ignored.
IGNORED = {"sequence_id", "sequence_start", "sequence_end", "priority", "binary_data_output"}


OFFSET_MAPPING = "offset_mapping"  # The begin and the end of each id in its text.


class EncodeParameters(BatchQuery):
    """The parameters of an encode request."""

    padding: schemas.Padding | None = None
    padding_side: schemas.Side | None = None
    pad_id: schemas.Length | None = None
    return_offsets: schemas.Unit | None = None
    surrogates: Surrogates = "refuse"


class DecodeParameters(BatchQuery):
    """The parameters of a decode request."""

    skip_special_tokens: bool = Field(False, description=schemas.SKIP_SPECIAL)


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that the request names, and its parameters."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Inference:
    """A request to run a model.

    Attributes:
        model: the name of the model.
        parameters: the parameters by name, not validated.
        inputs: the input tensors by name.
        outputs: the outputs that the client names; empty: the default outputs of the model.
        call: the head of the request.
    """

    model: str
    parameters: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: list[RequestedOutput]
    call: Call


class InferenceResult(NamedTuple):
    """The result of a model for a request.

    Attributes:
        outputs: functions that create the output tensors, by name.
        num_rows: the number of texts or rows of ids.
        queue_s: the number of seconds that the request waited in the queue.
    """

    outputs: Outputs
    num_rows: int
    queue_s: float


def check_new_input(inputs: dict[str, Tensor], name: str) -> None:
    """Raise InvalidRequest if a request has given an input before."""
    if name in inputs:
        raise InvalidRequest("is given twice", f"inputs/{name}")


def parse_parameters(model: type[Any], request: Inference) -> Any:
    """Validate the parameters of a request, and set the timeout of its call.

    Args:
        model: EncodeParameters or DecodeParameters, the type of the result.
        request: the request.

    Raises:
        InvalidRequest: a parameter is unknown or invalid.
    """
    if "vocabulary" in request.parameters:
        raise InvalidRequest(
            "is not allowed, because the model already is a vocabulary", "parameters/vocabulary"
        )
    given = {
        name: value
        for name, value in request.parameters.items()
        if name not in IGNORED and not name.startswith("triton_")
    }
    timeout_us = given.pop("timeout", None)
    if timeout_us is not None:
        digits = str(timeout_us) if isinstance(timeout_us, int | str) else ""
        if not (digits.isascii() and digits.isdigit()):
            raise InvalidRequest("must be a number of microseconds", "parameters/timeout")
        if len(digits) > 15:
            raise InvalidRequest("is too large", "parameters/timeout")
        if seconds := int(timeout_us) / 1e6:  # Clients send 0 if there is no timeout.
            call = request.call
            call.ends_at = min(call.ends_at, perf_counter() + seconds)
    try:
        return model.model_validate({"vocabulary": request.model, **given})
    except ValidationError as error:
        raise invalid_body(error) from error


def find_offset_unit(request: Inference, parameters: EncodeParameters) -> schemas.Unit | None:
    """Return the unit of the output OFFSET_MAPPING; None if it is not requested.

    If a request names the output without a unit, the unit is code points, as in the tokenizers of
    Hugging Face.
    """
    if parameters.return_offsets is not None:
        return parameters.return_offsets
    is_named = any(output.name == OFFSET_MAPPING for output in request.outputs)
    return "codepoints" if is_named else None


def row_offsets(inputs: dict[str, Tensor], num_values: int) -> NDArray[np.int64]:
    """Read the input `offsets`, int64[B + 1]; without this input all values are one row.

    Raises:
        InvalidRequest: the offsets are not integers, or do not fit the values.
    """
    offsets = inputs.get("offsets")
    if offsets is None:
        return np.array([0, num_values], np.int64)
    if offsets.datatype not in ("INT32", "INT64"):
        raise InvalidRequest(f"must be INT64, not {offsets.datatype}", "inputs/offsets")
    data = offsets.data
    if not data.flags.aligned:  # Binary data after the JSON may begin at any address.
        data = data.copy()
    return check_offsets(data.astype(np.int64, copy=False), num_values, "inputs/offsets")


def check_texts(service: Service, offsets: NDArray[np.int64]) -> None:
    """Check the number and the sizes of texts, which begin at offsets int64[B + 1], in bytes.

    Raises:
        TooLarge: there are too many texts, or one is too long.
    """
    check_rows(service, len(offsets) - 1, "text")
    limit = service.settings.max_text_bytes
    if offsets[-1] <= limit:
        return  # All texts together fit the limit of one.
    longest = int((offsets[1:] - offsets[:-1]).max())
    if longest > limit:
        raise TooLarge(f"a text has {longest} bytes; max_text_bytes is {limit}", "text")


def make_error_tensor(result: AnyResult) -> Tensor:
    """Create the output `errors`: the error of each row, or "" if it has none."""
    errors, num_rows = result.row_errors(), result.end - result.begin
    if not errors:
        return Tensor("errors", BYTES, (num_rows,), np.zeros(LENGTH_BYTES * num_rows, np.uint8))
    texts = [""] * num_rows
    for row, error in errors.items():
        texts[row] = f"{error.code}: {error.message} {error.where}".strip()
    return make_bytes_tensor("errors", Batch(texts))
