"""Defines the results of calls: ids of several texts, ragged or padded, on the host or a GPU.

Ragged rows are a flat array with offsets: row i is `ids[offsets[i]:offsets[i + 1]]`. All arrays are
NumPy arrays, which support DLPack and convert to Arrow and torch without a copy if the types are
equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.operations.rendering.offset_units import convert_spans
from service.operations.rendering.padding import pad_rows
from vocabularies.batch.batch import Batch, Encoded, RowError
from warptok.errors import InvalidRequest, NotInstalled, RowRefused
from warptok.options import Side, Unit

if TYPE_CHECKING:
    from gpu.windows import DeviceArray

Ids = NDArray[np.integer[Any]]
Int64s = NDArray[np.int64]
EXTRAS = {
    "torch": "embedding",
    "pyarrow": "arrow",
    "httpx": "client",
    "grpc": "grpc",
    "grpc_status": "grpc",
}
"""The extra of warptok that installs each library."""


def import_library(name: str, needed_by: str) -> Any:
    """Import an optional library.

    Raises:
        NotInstalled: the library is not installed; the message says how to install it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        install = f"pip install 'warptok[{EXTRAS[name]}]'"
        raise NotInstalled(f"{needed_by} needs {name}: {install}") from error


class Truncated(NamedTuple):
    """The truncation of a row.

    Attributes:
        num_tokens: the number of ids before truncation, begin and end tokens included.
        kept: the begin and the end of the kept range, counted without begin and end tokens.
    """

    num_tokens: int
    kept: tuple[int, int]


class RaggedTensors(NamedTuple):
    """Ragged rows as tensors: ids [T], and offsets int64[B + 1], where each row begins."""

    ids: Any
    offsets: Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedBatch:
    """The T ids of B texts. The caller owns every array.

    `len(batch)` is B; `batch[row]` and iteration return the ids of a row as a view.

    Attributes:
        ids: int32[T], or the `dtype` of the call: the ids of all rows, joined.
        offsets: int64[B + 1], where each row begins.
        engine: the engine that computed them: "gpu", "cpu" or "reference"; "" if the service does
            not report it.
        digest: the vocabulary's digest; "" if the service does not report it.
        offset_mapping: int64[T, 2], the begin and end of each id in its text, in the unit given by
            `return_offsets`; (0, 0) for begin and end tokens; None if not requested.
        tokens: each id's token as a string, row by row; None if not requested.
        truncated: the truncation of each truncated row, by row number. None if the service does not
            report it.
        errors: the refused rows, which have no ids; always empty without `errors="keep"`.
        pad_id: the id to pad with; None: the vocabulary has none.
        padding_side: the side that is padded; None if the service does not report it.
        kernel_time: the seconds that the engine took, including copies to and from a GPU; for a
            service, the seconds of all batches that contained the texts. None over HTTP, where the
            service does not report it.
    """

    ids: Ids
    offsets: Int64s
    engine: str
    digest: str
    offset_mapping: Int64s | None = None
    tokens: list[list[str]] | None = None
    truncated: Mapping[int, Truncated] | None = None
    errors: Mapping[int, RowError] = field(default_factory=dict)
    pad_id: int | None = None
    padding_side: Side | None = None
    kernel_time: float | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:
        row = range(len(self))[row]
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        refused = f", {len(self.errors)} refused" if self.errors else ""
        by = f", by {self.engine}" if self.engine else ""
        size = f"{len(self)} rows, {len(self.ids)} ids {self.ids.dtype}"
        return f"<warptok.EncodedBatch: {size}{refused}{by}>"

    @property
    def num_tokens(self) -> Int64s:
        """The number of ids of each row, int64[B]."""
        return np.diff(self.offsets)

    def to_list(self) -> list[list[int]]:
        """Return the rows as lists of Python integers."""
        return [row.tolist() for row in self]

    def to_arrow(self) -> Any:
        """Return the rows as a pyarrow.LargeListArray; refused rows are null.

        Raises:
            NotInstalled: pyarrow is not installed.
        """
        pa = import_library("pyarrow", "to_arrow()")
        mask = np.isin(np.arange(len(self)), list(self.errors))
        return pa.LargeListArray.from_arrays(
            pa.array(self.offsets), pa.array(self.ids), mask=pa.array(mask) if mask.any() else None
        )

    def to_torch(self, device: str | None = None) -> RaggedTensors:
        """Return ids [T] and offsets int64[B + 1] as tensors; on the host they share the memory.

        Raises:
            NotInstalled: torch is not installed.
        """
        torch = import_library("torch", "to_torch()")
        tensors = (torch.from_numpy(array) for array in (self.ids, self.offsets))
        return RaggedTensors(*(tensor.to(device) if device else tensor for tensor in tensors))

    def pad(
        self,
        min_length: int = 0,
        *,
        padding_side: Side | None = None,
        pad_id: int | None = None,
    ) -> PaddedBatch:
        """Pad all rows to the length of the longest one, and to `min_length` at least.

        Args:
            min_length: the smallest length of a padded row, in ids.
            padding_side: "right" or "left"; None: the vocabulary's side.
            pad_id: the id to pad with; None: the vocabulary's padding token.

        Raises:
            InvalidRequest: the vocabulary has no padding token, and `pad_id` is None.
        """
        pad_id = self.pad_id if pad_id is None else pad_id
        side = padding_side or self.padding_side
        if side is None:
            message = (
                'give padding_side= and pad_id=, or call encode_batch(texts, padding="longest")'
            )
            raise InvalidRequest(message, where="padding_side")
        if pad_id is None:
            message = "the vocabulary has no padding token; give the id to pad with: pad_id="
            raise InvalidRequest(message, where="pad_id")
        ids, mask = pad_rows(self.ids, self.offsets, pad_id, min_length, side)
        mapping = None
        if self.offset_mapping is not None:
            mapping = np.zeros((*ids.shape, 2), np.int64)
            mapping[mask.astype(np.bool_)] = self.offset_mapping
        return PaddedBatch(
            ids=ids,
            attention_mask=mask,
            engine=self.engine,
            digest=self.digest,
            offset_mapping=mapping,
            tokens=self.tokens,
            truncated=self.truncated,
            errors=self.errors,
            kernel_time=self.kernel_time,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaddedBatch:
    """The ids of B texts, padded to the same length L.

    Attributes:
        ids: int32[B, L].
        attention_mask: int8[B, L], 0 for padding and 1 for ids.
        offset_mapping: int64[B, L, 2], as in `EncodedBatch`; (0, 0) for padding.
        engine, digest, tokens, truncated, errors, kernel_time: as in `EncodedBatch`; `tokens` has
            no entries for padding.
    """

    ids: NDArray[np.int32]
    attention_mask: NDArray[np.int8]
    engine: str
    digest: str
    offset_mapping: Int64s | None = None
    tokens: list[list[str]] | None = None
    truncated: Mapping[int, Truncated] | None = None
    errors: Mapping[int, RowError] = field(default_factory=dict)
    kernel_time: float | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        rows, length = self.ids.shape
        by = f", by {self.engine}" if self.engine else ""
        return f"<warptok.PaddedBatch: {rows} rows of {length} ids{by}>"

    @property
    def num_tokens(self) -> Int64s:
        """The number of ids of each row without padding, int64[B]."""
        counts: Int64s = self.attention_mask.sum(1, dtype=np.int64)
        return counts

    def to_list(self) -> list[list[int]]:
        """Return the rows as lists of Python integers."""
        rows: list[list[int]] = self.ids.tolist()
        return rows

    def to_arrow(self) -> Any:
        """Return a pyarrow.Table with the columns `ids` and `attention_mask`, lists of L values.

        Raises:
            NotInstalled: pyarrow is not installed.
        """
        pa = import_library("pyarrow", "to_arrow()")
        columns = {
            name: pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
            for name, array in (("ids", self.ids), ("attention_mask", self.attention_mask))
        }
        return pa.table(columns)

    def to_torch(self, device: str | None = None) -> dict[str, Any]:
        """Return a model's arguments `input_ids` and `attention_mask`, int64[B, L], as tensors.

        Raises:
            NotInstalled: torch is not installed.
        """
        torch = import_library("torch", "to_torch()")
        arrays = {"input_ids": self.ids, "attention_mask": self.attention_mask}
        return {
            name: torch.from_numpy(array).to(device, torch.int64) for name, array in arrays.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceBatch:
    """The ids of B texts in the memory of a GPU.

    Attributes:
        ids: int32[T], or the `dtype` of the call, as an array that `torch.from_dlpack` and
            `cupy.asarray` accept without a copy; `ids.to_host()` copies it to the host.
        offsets: int64[B + 1] in host memory, where each row begins.
        digest: the vocabulary's digest.
    """

    ids: DeviceArray
    offsets: Int64s
    digest: str

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"<warptok.DeviceBatch: {len(self)} rows, {self.ids.shape[0]} ids {self.ids.dtype}>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextChunks:
    """The C chunks of one text.

    Attributes:
        ids: int32[T], the ids of all chunks, begin and end tokens included.
        offsets: int64[C + 1], where the ids of each chunk begin.
        offset_mapping: int64[C, 2], the begin and end of each chunk in the text, in units of
            `offset_unit`.
        starts: int64[C], the index of each chunk's first token among the text's tokens.
        texts: the text of each chunk; None if not requested.
        num_tokens: the number of the text's tokens.
        engine: the engine that computed them: "gpu", "cpu" or "reference".
        kernel_time: the seconds that the engine took, as in `EncodedBatch`.
    """

    ids: Ids
    offsets: Int64s
    offset_mapping: Int64s
    starts: Int64s
    texts: list[str] | None
    num_tokens: int
    engine: str
    kernel_time: float | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, chunk: int) -> Ids:
        chunk = range(len(self))[chunk]
        return self.ids[self.offsets[chunk] : self.offsets[chunk + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[chunk] for chunk in range(len(self)))


def raise_refused(errors: Mapping[int, RowError]) -> None:
    """Raise RowRefused for the first refused row, if there is any."""
    if errors:
        row = min(errors)
        raise RowRefused.of(row, errors[row])


def find_truncated(encoded: Encoded) -> dict[int, Truncated]:
    """Return the truncation of each truncated row, by row number."""
    if encoded.num_tokens is None or encoded.kept is None:
        return {}
    cut = np.flatnonzero(encoded.num_tokens != np.diff(encoded.offsets)).tolist()
    return {
        row: Truncated(int(encoded.num_tokens[row]), tuple(encoded.kept[row].tolist()))
        for row in cut
        if row not in encoded.errors
    }


def map_offsets(encoded: Encoded, batch: Batch, unit: Unit) -> NDArray[np.int64]:
    """Convert the begin and end of each id in its text to a unit, int64[T, 2].

    Raises:
        InvalidRequest: a text is not UTF-8, so it has no offsets in this unit.
    """
    assert encoded.spans is not None
    texts, invalid = batch.texts() if unit != "bytes" else ((), {})
    if invalid.keys() - encoded.errors.keys():
        message = 'offsets of a text that is not UTF-8 can only be in "bytes"'
        raise InvalidRequest(message, where="return_offsets")
    if unit == "bytes" or all(map(str.isascii, texts)):
        return encoded.spans
    places: Sequence[int] = encoded.offsets.tolist()
    rows = zip(texts, places, places[1:], strict=False)
    parts = [convert_spans(encoded.spans[begin:end], text, unit) for text, begin, end in rows]
    mapping: Int64s = np.concatenate(parts)
    return mapping
