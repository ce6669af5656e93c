"""Makes a batch of texts from any of the forms that Python libraries use.

    list of str or bytes · Arrow, chunked or not · pandas and polars columns · NumPy strings
    bytes and offsets · matrices of bytes (NumPy, torch) · a generator · a batch of read_batches

Bytes, Arrow's buffers and matrices are not copied. No library is imported that the caller has not
imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpu.embedding.inputs import as_batch
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, join_texts, utf8_size
from vocabularies.model.tables import ASCII
from warptok.errors import InvalidRequest
from warptok.options import Unit
from warptok.results import EncodedBatch, PaddedBatch, raise_refused

if TYPE_CHECKING:
    from service.seqio.reader import NamedBatch, Reading

HALF_PAIR = re.compile("[\ud800-\udfff]")
ONE_COLUMN = "a data frame has several columns; give the column of texts, such as frame['text']"
FORMS = (
    "texts are a list of str or bytes, an Arrow array, a column of pandas or polars, a NumPy array "
    "of strings, a matrix uint8[B, L], or bytes with offsets="
)


def make_batch(texts: Any, offsets: Any = None, *, surrogates: str = "refuse") -> Batch:
    """Make a batch of texts.

    Args:
        texts: any of the forms above.
        offsets: integers[B + 1], where each text begins in `texts`, which must be bytes or
            uint8[N]; None: `texts` has one of the other forms.
        surrogates: "refuse", or "replace" to put U+FFFD in the place of half a surrogate pair.

    Raises:
        TypeError: texts have another form; the message names the right one.
        InvalidRequest: a text is null or has half a surrogate pair, or the offsets do not match the
            bytes.
    """
    try:
        if offsets is not None:
            return as_batch((_as_values(texts), _to_host(offsets)))
        return _make(texts, surrogates)
    except UnicodeEncodeError as error:
        message = f'{error.reason}; surrogates="replace" encodes U+FFFD for it'
        raise InvalidRequest(message, code="lone_surrogate") from error
    except ValueError as error:
        raise InvalidRequest(str(error), where="texts") from error


def _make(texts: Any, surrogates: str) -> Batch:
    if isinstance(texts, Batch):
        if texts.options != DEFAULT_OPTIONS:
            raise ValueError("a Batch with options is not accepted; give the options to the call")
        return texts.duplicate()
    if isinstance(texts, str | bytes | bytearray | memoryview):
        raise TypeError(
            "one text was given: encode(text), or a list of texts, or bytes and offsets="
        )
    library = type(texts).__module__.partition(".")[0]
    if library in ("pandas", "polars"):
        return _of_column(texts, surrogates)
    if library == "pyarrow":
        return _of_arrow(texts)
    if library == "torch":
        return _of_tensor(texts)
    if isinstance(texts, np.ndarray) and texts.dtype.kind in "uS" and texts.ndim == 2:
        return as_batch(texts)
    if isinstance(texts, np.ndarray):
        return _of_numpy(texts, surrogates)
    if isinstance(texts, Mapping | Set):
        raise TypeError(f"a {type(texts).__name__} has no order; {FORMS}")
    if isinstance(texts, Iterable):
        return _of_list(texts if isinstance(texts, list | tuple) else list(texts), surrogates)
    raise TypeError(f"a {type(texts).__name__} is not a list of texts; {FORMS}")


def _of_list(texts: Sequence[Any], surrogates: str) -> Batch:
    """Make a batch from a list of strings, or of bytes, bytearrays or memoryviews."""
    kinds = set(map(type, texts))
    if kinds <= {str}:
        if surrogates == "replace":
            texts = [replace_half_pairs(text) for text in texts]
        _refuse_half_pairs(texts)
        return Batch(texts)
    if all(issubclass(kind, str) for kind in kinds):
        return _of_list([str(text) for text in texts], surrogates)
    missing = next((row for row, text in enumerate(texts) if _is_missing(text)), None)
    if missing is not None:
        raise ValueError(f"row {missing} is null")
    return as_batch(texts)


def _refuse_half_pairs(texts: Sequence[str]) -> None:
    """Raise UnicodeEncodeError, which names the row, if a text has half a surrogate pair."""
    try:
        utf8_size(list(texts), sys.maxsize)
    except UnicodeEncodeError:
        join_texts(texts)
        raise


def _is_missing(text: object) -> bool:
    """Return whether a row of a column is None, NaN or pandas' NA."""
    return (
        text is None
        or type(text).__name__ in ("NAType", "NaTType")
        or (isinstance(text, float) and text != text)
    )


def _of_column(column: Any, surrogates: str) -> Batch:
    """Make a batch from a Series of pandas or polars."""
    if hasattr(column, "columns"):
        raise TypeError(ONE_COLUMN)
    if find_spec("pyarrow") is not None:
        if hasattr(column, "to_arrow"):
            return _of_arrow(column.to_arrow())
        if hasattr(column.array, "__arrow_array__"):
            return _of_arrow(column.array.__arrow_array__())
    return _of_list(column.to_list(), surrogates)


def _of_arrow(array: Any) -> Batch:
    """Make a batch from an Arrow array, chunked or not, without copying its bytes."""
    if hasattr(array, "columns"):
        raise TypeError(ONE_COLUMN)
    kind = str(array.type)
    if kind in ("string_view", "binary_view") or kind.startswith("dictionary"):
        array = array.cast("large_string" if "string" in kind else "large_binary")
    return as_batch(array)


def _of_tensor(tensor: Any) -> Batch:
    """Make a batch from a matrix uint8[B, L]."""
    if tensor.ndim != 2:
        message = f"a tensor of {tensor.ndim} dimensions: give offsets=, or a matrix uint8[B, L]"
        raise TypeError(message)
    return as_batch(_to_host(tensor))


def _of_numpy(array: np.ndarray[Any, Any], surrogates: str) -> Batch:
    if array.dtype == np.uint8 and array.ndim == 1:
        raise TypeError(
            "an array uint8[N] contains joined texts; give offsets= int64[B + 1] as well"
        )
    if array.dtype.kind not in "UOST" or array.ndim != 1:
        raise TypeError(
            f"an array {array.dtype}{list(array.shape)} does not contain texts; {FORMS}"
        )
    return _of_list(array.tolist(), surrogates)


def _as_values(values: Any) -> Any:
    """Return the joined bytes of texts as an object with the buffer protocol."""
    if isinstance(values, str):
        raise TypeError(
            "offsets= count bytes; give text.encode(), or a list of texts without offsets="
        )
    return _to_host(values)


def _to_host(array: Any) -> Any:
    """Copy a tensor of torch from its device; return anything else unchanged."""
    return array.detach().cpu() if type(array).__module__.startswith("torch") else array


def refuse_invalid_utf8(batch: Batch) -> None:
    """Raise RowRefused if a text is not UTF-8; used before kernels that do not check it."""
    if not batch.has_texts and not (batch.data < ASCII).all():
        _, errors = batch.texts()
        raise_refused(errors)


def read_batches(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    reading: Reading = "auto",
    *,
    max_bytes: int = 4 << 20,
    max_records: int = 65_536,
) -> Iterator[NamedBatch]:
    """Read files of texts or sequences, plain or gzip, in batches with the names of the texts.

    Args:
        paths: one path, or several; without any path nothing is read.
        reading: "auto": FASTA and FASTQ, recognized by the first byte, and any other file as one
            text; "lines": a text for each line; "whole": a text for each file; "sequences": FASTA,
            FASTQ, and any other file as lines.
        max_bytes: the most bytes of a batch; a longer text is a batch of its own.
        max_records: the most texts of a batch.

    Returns:
        (names, texts) of each batch; `encode_batch` accepts `texts`.

    Raises:
        TypeError: paths is bytes or an open file.
        OSError: a file cannot be read.
        InvalidRequest: a file is damaged, or an argument is wrong; the message names the place.
    """
    from service.seqio.reader import read_batches as read

    if isinstance(paths, bytes) or hasattr(paths, "read"):
        raise TypeError(f"paths is a {type(paths).__name__}; it must be a path, or several paths")
    listed = [paths] if isinstance(paths, str | os.PathLike) else paths
    names = [os.fspath(path) for path in listed]
    try:
        yield from read(names, reading, max_bytes=max_bytes, max_records=max_records)
    except ValueError as error:
        raise InvalidRequest(str(error), code="bad_body") from error


def replace_half_pairs(text: str) -> str:
    """Put U+FFFD in the place of each half of a surrogate pair, and join whole pairs."""
    if HALF_PAIR.search(text) is None:
        return text
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return HALF_PAIR.sub("\ufffd", joined)


def one_text(call: str, text: Any, options: Mapping[str, Any]) -> Batch:
    """Make a batch of one text.

    Raises:
        TypeError: the text is neither str nor bytes.
    """
    if not isinstance(text, str | bytes | bytearray | memoryview):
        plural = {"encode": "encode_batch", "count": "count_batch"}.get(call)
        hint = f"; {plural}(texts) takes several" if plural else ""
        raise TypeError(f"{call}() takes one text, str or bytes, not {type(text).__name__}{hint}")
    return make_batch([text], surrogates=options.get("surrogates", "refuse"))


def as_text(text: Any, unit: Unit, options: Mapping[str, Any]) -> str:
    """Return a text as the string in which offsets are counted; "" for bytes with the unit "bytes".

    Raises:
        InvalidRequest: the text is bytes that are not UTF-8, which have no offsets in this unit.
    """
    if isinstance(text, str):
        return replace_half_pairs(text) if options.get("surrogates") == "replace" else text
    if unit == "bytes":
        return ""
    try:
        return bytes(text).decode()
    except UnicodeDecodeError as error:
        message = 'offsets of a text that is not UTF-8 can only be in "bytes"'
        raise InvalidRequest(message, where="unit") from error


def as_ids(ids: Any) -> NDArray[np.int64]:
    """Return one row of ids as int64[T].

    Raises:
        InvalidRequest: the ids are not whole numbers, or form several rows.
    """
    if type(ids).__module__.startswith("torch"):
        ids = ids.detach().cpu().numpy()
    if hasattr(ids, "as_py"):  # A row of an Arrow array.
        ids = ids.as_py()
    if ids is None:
        raise InvalidRequest("a row of ids is null", where="ids")
    row = np.asarray(ids if hasattr(ids, "__len__") or np.isscalar(ids) else list(ids))
    if row.ndim == 0:
        raise InvalidRequest(f"ids is {ids!r}; it must be a list, as in decode([{ids!r}])")
    if row.ndim != 1 and row.size:
        raise InvalidRequest(
            f"ids has {row.ndim} dimensions; use decode_batch(rows) for several rows"
        )
    if row.size and row.dtype.kind not in "iu":
        raise InvalidRequest(
            f"ids is an array of {row.dtype}; it must have whole numbers", where="ids"
        )
    return row.reshape(-1).astype(np.int64, copy=False)


def as_id_rows(rows: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of ids as int64[T], and offsets int64[B + 1], where each row begins.

    Raises:
        InvalidRequest: the ids are not whole numbers.
    """
    if isinstance(rows, EncodedBatch):
        return rows.ids.astype(np.int64, copy=False), rows.offsets
    listed = [as_ids(row) for row in (rows.ids if isinstance(rows, PaddedBatch) else rows)]
    offsets = np.zeros(len(listed) + 1, np.int64)
    np.cumsum([len(row) for row in listed], out=offsets[1:])
    return np.concatenate([np.zeros(0, np.int64), *listed]), offsets


def as_channel(channel: ArrayLike | None, num_bases: int) -> NDArray[np.float32] | None:
    """Return the values of a channel as float32[L].

    Raises:
        InvalidRequest: the channel does not have one finite value for each base.
    """
    if channel is None:
        return None
    values = np.asarray(channel, np.float64)
    if values.shape != (num_bases,):
        message = f"channel has {list(values.shape)} values, but the sequence has {num_bases} bases"
        raise InvalidRequest(message, where="channel")
    if not (np.abs(values) <= np.finfo(np.float32).max).all():
        raise InvalidRequest("a value is not a finite 32-bit number", where="channel")
    return values.astype(np.float32)
