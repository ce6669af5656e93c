"""Converts messages of warptok.proto to values of the service, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.apis.grpc.large_fields import cut_field
from service.batching.work import Result
from service.core.errors import InvalidRequest
from service.operations.arrays import check_offsets
from service.operations.encode import truncated_row
from service.operations.query_schemas import DTYPES
from service.protos import warptok_pb2 as pb
from service.registry.reports import VocabularyReport
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Encoded, EncodeOptions, RowError
from vocabularies.sequences.augmentation import Augmentation

Scalar = TypeVar("Scalar", bound=np.generic)
Int64s = NDArray[np.int64]


def read_array(data: bytes, dtype: type[Scalar], where: str) -> NDArray[Scalar]:
    """View little-endian bytes as an array of a dtype, without a copy.

    Args:
        data: the bytes.
        dtype: the type of an element.
        where: the place of the bytes in the message.

    Raises:
        InvalidRequest: the bytes are not a whole number of elements.
    """
    width = np.dtype(dtype).itemsize
    if len(data) % width:
        name = np.dtype(dtype).name
        raise InvalidRequest(f"{len(data)} bytes are not a multiple of the size of {name}", where)
    return np.frombuffer(data, dtype)


def read_offsets(data: bytes, num_values: int, where: str = "offsets") -> Int64s:
    """Read the offsets int64[B + 1] of `num_values` values from bytes.

    Raises:
        InvalidRequest: the bytes are not int64, or the offsets do not fit `num_values`.
    """
    return check_offsets(read_array(data, np.int64, where), num_values, where)


@dataclass(slots=True)
class TextsRequest:
    """An EncodeBatchRequest whose texts are a view of the received bytes.

    Attributes:
        message: the message without its field `data`.
        data: the bytes of all texts.
    """

    message: pb.EncodeBatchRequest
    data: memoryview

    DATA: ClassVar[int] = pb.EncodeBatchRequest.DATA_FIELD_NUMBER

    @classmethod
    def parse(cls, message: bytes) -> TextsRequest:
        """Parse the received bytes.

        Raises:
            DecodeError: the bytes are not a valid message.
        """
        data, rest = cut_field(message, cls.DATA)
        return cls(pb.EncodeBatchRequest.FromString(rest), data)

    def batch(self) -> Batch:
        """Return the texts as a batch.

        Raises:
            InvalidRequest: the offsets do not fit the texts.
        """
        data = np.frombuffer(self.data, np.uint8)
        return Batch(data=data, offsets=read_offsets(self.message.offsets, len(data)))


def read_options(options: pb.Options) -> EncodeOptions:
    """Read the encode options of a request.

    Raises:
        InvalidRequest: an option has an unknown value.
    """
    special, side = options.special or "match", options.truncation_side or "right"
    if special not in ("match", "plain", "refuse"):
        raise InvalidRequest("must be match, plain or refuse", "options.special")
    if side not in ("right", "left"):
        raise InvalidRequest("must be right or left", "options.truncation_side")
    invalid = options.invalid_utf8 or "refuse"
    if invalid not in ("refuse", "bytes"):
        raise InvalidRequest("must be refuse or bytes", "options.invalid_utf8")
    if options.token_form not in ("", "text", "file"):
        raise InvalidRequest("must be text or file", "options.token_form")
    max_length = options.max_length if options.HasField("max_length") else None
    if max_length is not None and max_length >= 2**31:
        raise InvalidRequest("must be below 2147483648", "options.max_length")
    parsed = EncodeOptions(
        add_special_tokens=_optional_field(options, "add_special_tokens") is not False,
        special=special,  # type: ignore[arg-type]
        max_length=max_length,
        truncation_side=side,  # type: ignore[arg-type]
        reverse_complement=options.reverse_complement,
        circular=_optional_field(options, "circular"),
        spans=options.return_offsets,
        invalid_utf8=invalid,  # type: ignore[arg-type]
        uppercase=options.uppercase,
    )
    return DEFAULT_OPTIONS if parsed == DEFAULT_OPTIONS else parsed


def read_augmentation(options: pb.Options) -> Augmentation | None:
    """Read the random changes to the rows of a call; None: there are none.

    Raises:
        InvalidRequest: a value is out of range.
    """
    if not options.HasField("augmentation"):
        return None
    given = options.augmentation
    try:
        return Augmentation(
            given.seed,
            _optional_field(given, "crop_letters"),
            given.substitution_rate,
            given.first_row,
        )
    except ValueError as error:
        raise InvalidRequest(str(error), "options.augmentation") from error


def _optional_field(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def read_dtype(options: pb.Options) -> type[np.integer[Any]]:
    """Read the dtype of the ids in the answer.

    Raises:
        InvalidRequest: the dtype is unknown.
    """
    name = options.dtype or "int32"
    if name not in DTYPES:
        raise InvalidRequest(f"must be {', '.join(DTYPES)}", "options.dtype")
    return DTYPES[name]


def error_messages(errors: dict[int, RowError]) -> list[pb.RowError]:
    """Return the messages that describe a request's refused rows."""
    return [
        pb.RowError(row=row, code=error.code, message=error.message, where=error.where)
        for row, error in sorted(errors.items())
    ]


def truncated_messages(result: Result[Encoded]) -> list[pb.Truncated]:
    """Return the messages that describe a request's truncated rows."""
    messages: list[pb.Truncated] = []
    if result.output.num_tokens is None:
        return messages
    for row in range(result.begin, result.end):
        if (truncated := truncated_row(result, row)) is not None:
            begin, end = truncated["kept"]
            message = pb.Truncated(
                row=row - result.begin,
                num_tokens=truncated["num_tokens"],
                kept_begin=begin,
                kept_end=end,
            )
            messages.append(message)
    return messages


def vocabulary_message(report: VocabularyReport) -> pb.Vocabulary:
    """Return the message that describes a vocabulary."""
    fields = {name: getattr(report, name) for name in pb.Vocabulary.DESCRIPTOR.fields_by_name}
    return pb.Vocabulary(**{name: value for name, value in fields.items() if value is not None})
