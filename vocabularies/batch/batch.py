"""Batches of texts for an engine, their options, and the ids that it returns.

Strings are joined as UTF-8 by string_join.cpp if the extension is built, else in Python. Both
return the same bytes and refuse the same strings; JOINED_BY names the one in use. Both engines and
the reference use these types, which do not depend on HTTP or CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.ragged import offsets_from_lengths

try:
    from vocabularies.batch import _string_join as native

    if not hasattr(native, "hold"):  # Built from older sources.
        raise ImportError
except ImportError:
    native = None  # type: ignore[assignment]

MAX_UTF8 = 4  # Bytes of a character.
SPECIAL = ("match", "plain", "refuse")
SIDES = ("right", "left")
INVALID_UTF8 = ("refuse", "bytes")
ID_DTYPES = (np.int32, np.uint16, np.uint8)
Joined = tuple[NDArray[np.uint8], NDArray[np.int64]]
Memory = Callable[[int], NDArray[np.uint8] | None]
"""Allocates uint8[N]; returns None if there is not enough memory."""
Copy = Callable[[tuple[str, ...], NDArray[np.int64], NDArray[np.uint8]], object]
"""Writes the UTF-8 of measured strings to uint8[N], each at its offset of int64[B + 1]."""
JOINED_BY = "Python" if native is None else "C++"
LARGE_BYTES = 1 << 18  # Fewer bytes go to new memory, not to the caller's.
LONG_TEXT = 64  # Characters from which on a call for each text costs less than a second pass.
CACHE_BYTES = 1 << 22
UINT8 = np.dtype(np.uint8)
INT64 = np.dtype(np.int64)
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
SAMPLE = 64  # The number of texts whose mean length is taken as the typical length.


@dataclass(frozen=True, slots=True)
class RowError:
    """The reason why one row of a batch was refused; the other rows are encoded.

    Attributes:
        code: the error code, such as ``special_token_refused``.
        message: the error message for people.
        where: the place of the fault in the row, such as ``byte 17``.
    """

    code: str
    message: str
    where: str = ""

    @staticmethod
    def of_max_length(max_length: int, num_added: int) -> RowError:
        """Return the error of a row that may have fewer ids than its begin and end tokens."""
        message = f"max_length is {max_length}, less than the {num_added} begin and end tokens"
        return RowError("max_length_too_small", message)


class RowRefused(ValueError):
    """One row cannot be encoded or decoded; `error` says why."""

    def __init__(self, error: RowError) -> None:
        self.error = error
        super().__init__(f"{error.code}: {error.message}")


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """The options of one row.

    Attributes:
        add_special_tokens: put the vocabulary's begin and end tokens around the ids.
        special: how the text of a special token inside the input is encoded: "match": as its id;
            "plain": as ordinary text; "refuse": the row is refused.
        max_length: the largest number of ids of the row, including begin and end tokens; None: no
            limit.
        truncation_side: the side from which ids are removed when the row is truncated.
        reverse_complement: encode the reverse complement of the text.
        circular: whether the sequence is circular; None: the vocabulary's default.
        spans: return the begin and end byte of each id in the text.
        invalid_utf8: how a text that is not UTF-8 is handled: "refuse": the row is refused;
            "bytes": it is encoded by `vocabularies.reference.invalid_utf8`.
        uppercase: convert the letters a to z to upper case before any other step, including letters
            in the text of special tokens.

    Raises:
        ValueError: max_length is negative, or special, truncation_side or invalid_utf8 has a value
            that is not listed above.
    """

    add_special_tokens: bool = True
    special: Literal["match", "plain", "refuse"] = "match"
    max_length: int | None = None
    truncation_side: Literal["right", "left"] = "right"
    reverse_complement: bool = False
    circular: bool | None = None
    spans: bool = False
    invalid_utf8: Literal["refuse", "bytes"] = "refuse"
    uppercase: bool = False

    def __post_init__(self) -> None:
        if self.special not in SPECIAL:
            raise ValueError(f"special is {self.special!r}; it must be one of {', '.join(SPECIAL)}")
        if self.truncation_side not in SIDES:
            raise ValueError(
                f"truncation_side is {self.truncation_side!r}; it must be right or left"
            )
        if self.invalid_utf8 not in INVALID_UTF8:
            raise ValueError(f"invalid_utf8 is {self.invalid_utf8!r}; it must be refuse or bytes")
        if self.max_length is not None and self.max_length < 0:
            raise ValueError(f"max_length is {self.max_length}; it must be at least 0")


DEFAULT_OPTIONS = EncodeOptions()


class Batch:
    """Texts with their options, as strings or as joined bytes; each form is computed at most once.

    Attributes:
        num_rows: the number of texts.
        options: one EncodeOptions for each row, or a single one for all of them.
        id_dtype: the dtype in which the caller will write the ids, int32, uint16 or uint8; every id
            of the vocabulary fits. An engine may return ids in it, where that is faster, or int32.
        should_continue: engines call this function during long work, on their own thread; they stop
            if it returns False, because the result is no longer needed.
    """

    def __init__(
        self,
        texts: Sequence[str] | None = None,
        *,
        data: NDArray[np.uint8] | None = None,
        offsets: NDArray[np.int64] | None = None,
        options: EncodeOptions | Sequence[EncodeOptions] = DEFAULT_OPTIONS,
        id_dtype: type[np.integer[Any]] = np.int32,
    ) -> None:
        """Make a batch from texts, or from data uint8[N] and offsets int64[B + 1], without copying.

        The caller must not change the arguments later. The first offset may be greater than 0 and
        the last less than N; the bytes outside belong to no row.

        Raises:
            TypeError: `texts` is a single string, or data or offsets have another dtype or shape.
            ValueError: the offsets are not within 0 .. N, or the number of options is not the
                number of rows.
        """
        if isinstance(texts, str):
            raise TypeError("texts is a single text; it must be a list of texts")
        assert (texts is None) == (data is not None and offsets is not None)
        self._joined: Joined | None = None
        if data is not None and offsets is not None:
            data, offsets = self._joined = contiguous_rows(data, offsets)
        self._texts = texts
        self._data = data
        self._offsets = offsets
        self.options = options
        self.id_dtype = id_dtype
        self.should_continue: Callable[[], bool] = lambda: True
        self.num_rows = len(texts) if texts is not None else len(offsets) - 1  # type: ignore[arg-type]
        if not isinstance(options, EncodeOptions) and len(options) != self.num_rows:
            raise ValueError(f"there are {len(options)} options for {self.num_rows} rows")

    def __len__(self) -> int:
        return self.num_rows

    @property
    def has_texts(self) -> bool:
        """Whether the batch was made from strings, so that all rows are valid UTF-8."""
        return self._texts is not None

    @property
    def only_text(self) -> str | NDArray[np.uint8] | None:
        """The text of a batch of one row, as a string or bytes; None for other batches."""
        if self.num_rows != 1:
            return None
        return self.data if self._texts is None else self._texts[0]

    def check_id_dtype(self, num_ids: int) -> None:
        """Check that `id_dtype` is int32, uint16 or uint8 and holds every id below `num_ids`.

        Raises:
            ValueError: it is another type, or too narrow.
        """
        if self.id_dtype is np.int32:
            return
        if self.id_dtype not in ID_DTYPES:
            raise ValueError(
                f"id_dtype is {np.dtype(self.id_dtype)}; it must be int32, uint16 or uint8"
            )
        if num_ids > np.iinfo(self.id_dtype).max + 1:
            raise ValueError(
                f"a vocabulary of {num_ids} ids does not fit in {np.dtype(self.id_dtype)}"
            )

    def groups(self) -> Iterator[tuple[EncodeOptions, Sequence[int]]]:
        """Yield the rows that share their options, in order of first appearance."""
        if isinstance(self.options, EncodeOptions):
            yield self.options, range(self.num_rows)
            return
        rows: dict[EncodeOptions, list[int]] = {}
        for row, options in enumerate(self.options):
            rows.setdefault(options, []).append(row)
        if len(rows) == 1:
            yield self.options[0], range(self.num_rows)
        else:
            yield from rows.items()

    def select(self, rows: Sequence[int], options: EncodeOptions) -> Batch:
        """Make a batch of some rows, all with the same options; all rows are not copied."""
        if isinstance(rows, range) and rows == range(self.num_rows):
            return self.with_options(options)
        if self._texts is not None:
            part = Batch([self._texts[row] for row in rows], options=options)
        else:
            part = Batch.from_bytes([self.row_bytes(row) for row in rows], options)
        part.should_continue = self.should_continue
        return part

    def with_options(self, options: EncodeOptions | Sequence[EncodeOptions]) -> Batch:
        """Make a batch of the same rows with other options; nothing is copied."""
        if self.options is options:
            return self
        return self._with(options)

    def duplicate(self) -> Batch:
        """Make a batch of the same rows; joining its texts does not change this one."""
        same = self._with(self.options)
        same._joined = self._joined
        return same

    def _with(self, options: EncodeOptions | Sequence[EncodeOptions]) -> Batch:
        same = Batch(
            self._texts,
            data=self._data,
            offsets=self._offsets,
            options=options,
            id_dtype=self.id_dtype,
        )
        same.should_continue = self.should_continue
        return same

    def part(self, begin: int, end: int) -> Batch:
        """Make a batch of neighbouring rows; no bytes are copied."""
        if (begin, end) == (0, self.num_rows):
            return self
        options = self.options
        if not isinstance(options, EncodeOptions):
            options = options[begin:end]
        if self._data is None or self._offsets is None:
            assert self._texts is not None
            return Batch(self._texts[begin:end], options=options, id_dtype=self.id_dtype)
        offsets = self._offsets[begin : end + 1]
        data = self._data[offsets[0] : offsets[-1]]
        return Batch(
            data=data, offsets=offsets - offsets[0], options=options, id_dtype=self.id_dtype
        )

    @classmethod
    def joined(
        cls,
        batches: Sequence[Batch],
        options: EncodeOptions | Sequence[EncodeOptions] = DEFAULT_OPTIONS,
        memory: Memory | None = None,
    ) -> Batch:
        """Join the rows of several batches, in order, and give them new options.

        Args:
            batches: at least one.
            options: the options of the joined rows.
            memory: allocates at least the given number of bytes for the joined texts; None: NumPy
                allocates them.
        """
        if len(batches) == 1:
            return batches[0].with_options(options)
        if all(batch.has_texts for batch in batches):
            return cls([text for batch in batches for text in batch._texts or ()], options=options)
        offsets = np.zeros(sum(map(len, batches)) + 1, np.int64)
        np.cumsum(np.concatenate([np.diff(batch.offsets) for batch in batches]), out=offsets[1:])
        num_bytes = int(offsets[-1])
        buffer = None if memory is None else memory(num_bytes)
        out = None if buffer is None else buffer[:num_bytes]
        data = np.concatenate([batch.data for batch in batches], out=out)
        id_dtypes = {batch.id_dtype for batch in batches}
        id_dtype = id_dtypes.pop() if len(id_dtypes) == 1 else np.int32
        return cls(data=data, offsets=offsets, options=options, id_dtype=id_dtype)

    def has_bytes(self, num_bytes: int) -> bool:
        """Return whether the batch has at least `num_bytes` bytes of UTF-8.

        A character has 1 to 4 bytes, so the number of characters often decides; only otherwise are
        the texts joined.
        """
        if self._data is None and self._texts is not None:
            num_characters = sum(map(len, self._texts))
            if num_characters >= num_bytes or num_characters * MAX_UTF8 < num_bytes:
                return num_characters >= num_bytes
        return len(self.data) >= num_bytes

    @property
    def size(self) -> int:
        """The number of bytes or, as long as the texts are not joined, of characters."""
        if self._data is None and self._texts is not None and self._joined is None:
            return sum(map(len, self._texts))
        return len(self.data)

    @classmethod
    def from_bytes(
        cls,
        rows: Sequence[bytes],
        options: EncodeOptions | Sequence[EncodeOptions] = DEFAULT_OPTIONS,
    ) -> Batch:
        """Make a batch of byte strings, which need not be UTF-8."""
        data = np.frombuffer(b"".join(rows), np.uint8)
        offsets = offsets_from_lengths(np.fromiter(map(len, rows), np.int64, len(rows)))
        if offsets[-1] != len(data):  # A row is a buffer whose items are larger than one byte.
            offsets = offsets_from_lengths(
                np.array([memoryview(row).nbytes for row in rows], np.int64)
            )
        return cls(data=data, offsets=offsets, options=options)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes of all texts, joined, uint8[N]."""
        return (self._joined or self._join())[0]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The place in `data` where each text begins, int64[B + 1]; the last entry is N."""
        return (self._joined or self._join())[1]

    def join_in(self, memory: Memory, copy: Copy | None = None) -> None:
        """Join the texts in memory of the caller, unless they are joined; see `join_texts`."""
        if self._texts is not None and self._joined is None:
            self._joined = join_texts(self._texts, memory, copy=copy)

    def _join(self) -> Joined:
        assert self._texts is not None
        self._joined = join_texts(self._texts)
        return self._joined

    def row_bytes(self, row: int) -> bytes:
        """Return the bytes of one text."""
        if self._texts is not None:
            return self._texts[row].encode()
        begin, end = self.offsets[row], self.offsets[row + 1]
        return self.data[begin:end].tobytes()

    def texts(self) -> tuple[Sequence[str], dict[int, RowError]]:
        """Return the rows as strings, and the errors; a row that is not UTF-8 becomes ""."""
        if self._texts is not None:
            return self._texts, {}
        texts: list[str] = []
        errors: dict[int, RowError] = {}
        for row in range(self.num_rows):
            try:
                texts.append(self.row_bytes(row).decode())
            except UnicodeDecodeError as error:
                texts.append("")
                where = f"byte {error.start}"
                errors[row] = RowError("not_utf8", f"the text is not UTF-8: {error.reason}", where)
        return texts, errors


@dataclass(slots=True)
class Encoded:
    """The ids of a batch; the caller owns every array.

    Attributes:
        ids: int32[T], or the batch's `id_dtype`; the rows one after another.
        offsets: int64[B + 1], where each row's ids begin; a refused row has none.
        spans: int64[T, 2], begin and end byte of each id in the original text of its row; (0, 0)
            for begin and end tokens. None if no row's options request spans.
        num_tokens: int64[B], the number of ids of each row before truncation, including begin and
            end tokens; None if no row was truncated.
        kept: int64[B, 2], the range of each row's ids that remains after truncation, without begin
            and end tokens; None if no row was truncated.
        errors: the refused rows.
        engine: the engine that computed the ids: "gpu", "cpu" or "reference".
    """

    ids: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]
    spans: NDArray[np.int64] | None = None
    num_tokens: NDArray[np.int64] | None = None
    kept: NDArray[np.int64] | None = None
    errors: dict[int, RowError] = field(default_factory=dict)
    engine: str = "cpu"

    def row(self, row: int) -> NDArray[np.integer[Any]]:
        """Return the ids of one row (a view)."""
        return self.ids[self.offsets[row] : self.offsets[row + 1]]


def join_texts(
    texts: Sequence[str],
    memory: Memory | None = None,
    by: Any = native,
    copy: Copy | None = None,
) -> Joined:
    """Join texts; return their UTF-8 bytes, uint8[N], and the begin of each text, int64[B + 1].

    Args:
        texts: the texts.
        memory: allocates memory if the texts have LARGE_BYTES or more; joining in Python does not
            use it.
        by: the extension, or None to join in Python.
        copy: copies the texts if they have LARGE_BYTES or more; None: the extension copies them.

    Raises:
        TypeError: a row is not a string; the message has its number.
        UnicodeEncodeError: a text has a lone surrogate; the message has the number of its row.
    """
    try:
        return join_in_python(texts) if by is None else _join_natively(texts, memory, by, copy)
    except (TypeError, UnicodeEncodeError) as error:
        raise _with_row(error, texts) from error


def _join_natively(
    texts: Sequence[str], memory: Memory | None, by: Any, copy: Copy | None
) -> Joined:
    listed: Any = texts if isinstance(texts, list | tuple) else list(texts)
    offsets = np.empty(len(listed) + 1, np.int64)
    if copy is None:
        by.measure(listed, offsets)
    else:  # The copy runs later: a tuple keeps the measured strings if the list is changed.
        listed = by.hold(listed, offsets)
    num_bytes = int(offsets[-1])
    data = memory(num_bytes) if memory is not None and num_bytes >= LARGE_BYTES else None
    if data is None:
        data = np.empty(num_bytes, np.uint8)
    if copy is None or num_bytes < LARGE_BYTES:
        copy = by.copy
    copy(listed, offsets, data)
    return data, offsets


def _with_row(error: Exception, texts: Sequence[Any]) -> Exception:
    """Find the row that caused an error, and return the error with the row's number."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            return TypeError(f"row {row} is a {type(text).__name__}; texts are str")
        try:
            text.encode()
        except UnicodeEncodeError as own:
            own.reason = f"{own.reason} (row {row})"
            return own
    return error


def join_in_python(texts: Sequence[str]) -> Joined:
    """Join texts as `join_texts` does, but in Python.

    Short texts are joined and then encoded, since a call for each text costs more than a second
    pass over all of them. Long texts are encoded one by one, unless all are ASCII and fit together
    into a CPU cache.
    """
    sample = texts[:: len(texts) // SAMPLE + 1]
    typical = sum(map(len, sample)) // max(1, len(sample))
    fits = typical * len(texts) <= CACHE_BYTES
    if typical >= LONG_TEXT and not (fits and all(map(str.isascii, texts))):
        rows = [*map(str.encode, texts)]
        data = np.frombuffer(b"".join(rows), np.uint8)
        return data, _measured_offsets(map(len, rows), len(rows))
    joined = "".join(texts)
    data = np.frombuffer(joined.encode(), np.uint8)
    lengths: Iterable[int] = map(len, texts)
    if len(data) != len(joined):
        lengths = (len(t) if t.isascii() else len(t.encode()) for t in texts)
    return data, _measured_offsets(lengths, len(texts))


def _measured_offsets(lengths: Iterable[int], num_rows: int) -> NDArray[np.int64]:
    return offsets_from_lengths(np.fromiter(lengths, np.int64, num_rows))


def utf8_size(texts: list[str], most: int, by: Any = native) -> int:
    """Count the UTF-8 bytes of all texts; return -1 if these have more than `most` characters.

    Raises:
        UnicodeEncodeError: a text has a lone surrogate.
    """
    if by is not None:
        counted: int = by.utf8_size(texts, most)
        return counted
    if sum(map(len, texts)) > most:
        return -1
    joined = "".join(texts)
    return len(joined) if joined.isascii() else len(joined.encode())


def contiguous_rows(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of the rows, contiguous uint8[N], and where each begins, int64[B + 1].

    Raises:
        TypeError: `data` is not uint8[N], or `offsets` is not an array of integers [B + 1].
        ValueError: an offset is negative or beyond the end of the data.
    """
    if data.dtype != UINT8 or offsets.dtype != INT64 or data.strides != (1,):
        data, offsets = _make_contiguous(data, offsets)
    if not offsets[0] and offsets[-1] == len(data):
        return data, offsets
    if not 0 <= offsets[0] <= offsets[-1] <= len(data):
        raise ValueError(
            f"offsets go from {offsets[0]} to {offsets[-1]}, not from 0 to {len(data)}"
        )
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _make_contiguous(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Convert arrays to contiguous uint8[N] and int64[B + 1].

    Raises:
        TypeError: an array has another dtype or shape; the message names it.
    """
    for name, array, kinds, expected in (
        ("data", data, ("u1",), "uint8[N]"),
        ("offsets", offsets, INTEGERS, "int64[B + 1]"),
    ):
        if array.dtype.str[1:] not in kinds or array.ndim != 1:
            raise TypeError(
                f"{name} is an array {array.dtype}{list(array.shape)}; it must be {expected}"
            )
    return np.ascontiguousarray(data), offsets.astype(np.int64, copy=False)
