"""Messages of warptok.proto as values of ours, and back: arrays as bytes, options, vocabularies."""

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

Scalar = TypeVar("Scalar", bound=np.generic)
Int64s = NDArray[np.int64]


def read_array(data: bytes, dtype: type[Scalar], where: str) -> NDArray[Scalar]:
    """Little-endian bytes as an array.

    Raises:
        InvalidRequest: they are not whole elements.
    """
    width = np.dtype(dtype).itemsize
    if len(data) % width:
        name = np.dtype(dtype).name
        raise InvalidRequest(f"{len(data)} bytes are no whole number of {name}", where)
    return np.frombuffer(data, dtype)


def read_offsets(data: bytes, num_values: int, where: str = "offsets") -> Int64s:
    """int64[B + 1] from bytes; see `check_offsets`."""
    return check_offsets(read_array(data, np.int64, where), num_values, where)


@dataclass(slots=True)
class TextsRequest:
    """An EncodeBatchRequest whose texts are a view of the bytes that came.

    Attributes:
        message: everything but `data`.
    """

    message: pb.EncodeBatchRequest
    data: memoryview

    DATA: ClassVar[int] = pb.EncodeBatchRequest.DATA_FIELD_NUMBER

    @classmethod
    def parse(cls, message: bytes) -> TextsRequest:
        """From the wire.

        Raises:
            DecodeError: the bytes are no message.
        """
        data, rest = cut_field(message, cls.DATA)
        return cls(pb.EncodeBatchRequest.FromString(rest), data)

    def batch(self) -> Batch:
        """The texts.

        Raises:
            InvalidRequest: the offsets are none of these bytes'.
        """
        data = np.frombuffer(self.data, np.uint8)
        return Batch(data=data, offsets=read_offsets(self.message.offsets, len(data)))


def read_options(options: pb.Options) -> EncodeOptions:
    """What each row asks for.

    Raises:
        InvalidRequest: a word is none of those that are possible.
    """
    special, side = options.special or "match", options.truncation_side or "right"
    if special not in ("match", "plain", "refuse"):
        raise InvalidRequest("must be match, plain or refuse", "options.special")
    if side not in ("right", "left"):
        raise InvalidRequest("must be right or left", "options.truncation_side")
    max_length = options.max_length if options.HasField("max_length") else None
    if max_length is not None and max_length >= 2**31:
        raise InvalidRequest("must be below 2147483648", "options.max_length")
    made = EncodeOptions(
        add_special_tokens=_or_none(options, "add_special_tokens") is not False,
        special=special,  # type: ignore[arg-type]
        max_length=max_length,
        truncation_side=side,  # type: ignore[arg-type]
        reverse_complement=options.reverse_complement,
        circular=_or_none(options, "circular"),
        spans=options.return_offsets,
    )
    return DEFAULT_OPTIONS if made == DEFAULT_OPTIONS else made


def _or_none(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def read_dtype(options: pb.Options) -> type[np.integer[Any]]:
    """How wide the ids shall be.

    Raises:
        InvalidRequest: in no way that is possible.
    """
    name = options.dtype or "int32"
    if name not in DTYPES:
        raise InvalidRequest(f"must be {', '.join(DTYPES)}", "options.dtype")
    return DTYPES[name]


def error_messages(errors: dict[int, RowError]) -> list[pb.RowError]:
    """The refused rows of a request."""
    return [
        pb.RowError(row=row, code=error.code, message=error.message, where=error.where)
        for row, error in sorted(errors.items())
    ]


def truncated_messages(result: Result[Encoded]) -> list[pb.Truncated]:
    """The rows of a request that were cut."""
    messages: list[pb.Truncated] = []
    if result.output.num_tokens is None:
        return messages
    for row in range(result.begin, result.end):
        if (cut := truncated_row(result, row)) is not None:
            begin, end = cut["kept"]
            number = row - result.begin
            message = pb.Truncated(
                row=number, num_tokens=cut["num_tokens"], kept_begin=begin, kept_end=end
            )
            messages.append(message)
    return messages


def vocabulary_message(report: VocabularyReport) -> pb.Vocabulary:
    """What is known of a vocabulary."""
    fields = {name: getattr(report, name) for name in pb.Vocabulary.DESCRIPTOR.fields_by_name}
    return pb.Vocabulary(**{name: value for name, value in fields.items() if value is not None})
