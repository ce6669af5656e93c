"""Answers POST /v1/encode/fasta: FASTA or FASTQ in, an Arrow stream of ids or windows out.

The first byte distinguishes FASTA and FASTQ; gzip and zstd are Content-Encodings. Records of up to
4 MiB in total become one record batch. Memory does not grow with the file: for windows, a longer
record is encoded in parts if the vocabulary allows it; all other records are limited to
`max_text_bytes`. A form contains the file as its part `sequences`, and before it the part `channel`
with a value for each base.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from service.apis.bulk.arrow_reader import TextBatch, check_sizes
from service.apis.bulk.arrow_stream import ArrowStream, BodyReader, Messages, Source
from service.apis.bulk.arrow_writer import RecordMessages
from service.apis.bulk.fasta_batches import (
    BATCH_RECORDS,
    BaseValues,
    FastaBatches,
    RecordNames,
    make_too_long,
)
from service.apis.bulk.fasta_form import Reader, SequencesForm, find_boundary
from service.apis.bulk.sequence_chunks import Splitter, find_splitter
from service.apis.bulk.window_writer import WindowColumns, WindowMessages
from service.core.errors import BadBody, InvalidRequest
from service.core.settings import Settings
from service.http.body.decompression import ENCODINGS
from service.operations import schemas
from service.operations.query_schemas import StreamQuery
from service.operations.windows import refused_layouts
from service.seqio.fasta import Name, fasta_pieces
from service.seqio.fastq import RecordTooLong
from service.seqio.format_detection import (
    ARCHIVES,
    BYTE_ORDER_MARK,
    FORMATS,
    PREAMBLE,
    UTF16_STARTS,
)
from service.seqio.reader import BATCH_BYTES, sequence_batches
from service.seqio.sequence_checks import BadRecord
from vocabularies.batch.batch import EncodeOptions
from vocabularies.sequences.channel import ChannelError, SparseChannel
from vocabularies.sequences.window_layout import WindowLayout, make_layout

if TYPE_CHECKING:
    from fastapi import Request

    from service.operations.context import Service

READ_BYTES = 1 << 18
CHANNEL_NAME = "het_values"
WINDOW_OPTIONS = "stride", "junction", "add_cls", "padding", "return_positions", "channel_name"
TAKEN_NAMES = "name", "start", "input_ids", "attention_mask", "position_ids", "error"


class FastaQuery(StreamQuery):
    """The options of the call; with `window` the answer contains windows instead of records."""

    window: int | None = Field(None, ge=1, le=1_048_576, description="Number of ids in a window.")
    stride: int | None = Field(
        None,
        ge=1,
        le=2**31,
        description="Number of ids between the starts of two windows; the value of `window` if "
        "absent.",
    )
    junction: schemas.Junction | None = Field(None, description=f"With window. {schemas.JUNCTION}")
    add_cls: bool = Field(False, description=f"With window. {schemas.ADD_CLS}")
    padding: Literal["window"] | None = Field(
        None,
        description="With window. 'window' pads shorter windows at the end of a record to "
        "`window` ids, and adds the column attention_mask.",
    )
    return_positions: bool = Field(
        False,
        description="With window. Add the column position_ids: the position of the base at which "
        "each id begins.",
    )
    channel_name: str | None = Field(
        None,
        pattern=schemas.FIELD_NAME,
        description="With window and a form that has a channel: the name of the column with the "
        "values of the channel; het_values if absent.",
    )


MAX_PREAMBLE_BYTES = 1 << 16  # Limit for blank lines and comments before the first record.
PREAMBLE_READ_BYTES = 1 << 12


class _Body(io.RawIOBase):
    """A file object of the body that refuses a line which is too long before all of it is read."""

    def __init__(self, body: Reader, first: bytes, max_bytes: int) -> None:
        super().__init__()
        self._body = body
        self._first = first
        self._max_bytes = max_bytes
        self._last = b""
        self._line_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._first or self._body.read(min(len(buffer), READ_BYTES))
        self._first = b""
        seen = self._last + bytes(data)
        line_end = seen.rfind(b"\n")
        self._line_bytes = self._line_bytes + len(data) if line_end < 0 else len(seen) - line_end
        self._last = seen[-1:]
        # Allow a quarter more for line ends and names.
        if self._line_bytes > self._max_bytes + self._max_bytes // 4 + READ_BYTES:
            raise make_too_long(self._line_bytes, self._max_bytes)
        buffer[: len(data)] = data
        return len(data)


class _Records:
    """Reads the records of a body in batches; a part of a long record is a separate batch.

    Args:
        body: FASTA or FASTQ.
        max_bytes: the maximum size of a record that cannot be split.
        splitter: splits long records; None: records are not split.
        was_packed: whether the body was compressed; if so, its content is not decompressed again.
        uppercase: whether to convert letters of FASTA to upper case before records are split.
        max_records: the maximum number of records of a batch.
    """

    def __init__(
        self,
        body: Reader,
        max_bytes: int,
        splitter: Splitter | None,
        *,
        was_packed: bool,
        uppercase: bool,
        max_records: int = BATCH_RECORDS,
    ) -> None:
        self._body = body
        self._was_packed = was_packed
        self._uppercase = uppercase
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._splitter = splitter
        self._batches: Iterator[TextBatch] | None = None

    def next_batch(self) -> TextBatch | None:
        """Read the next records, with RecordNames as metadata; return None at the end.

        Raises:
            BadBody: the body is neither FASTA nor FASTQ; the message names the record.
            TooLarge: a record that cannot be split is longer than `max_text_bytes`.
        """
        try:
            if self._batches is None:
                self._batches = self._open()
            return next(self._batches, None)
        except RecordTooLong as error:
            raise make_too_long(error.num_bytes, self._max_bytes) from error
        except ValueError as error:
            where = f"record {error.number}" if isinstance(error, BadRecord) else "body"
            raise BadBody(f"the body is neither FASTA nor FASTQ: {error}", where) from error

    def _open(self) -> Iterator[TextBatch]:
        first = bytes(self._body.read(1))
        while first and len(first) < MAX_PREAMBLE_BYTES and PREAMBLE.fullmatch(first):
            if not (data := bytes(self._body.read(PREAMBLE_READ_BYTES))):
                break
            first += data
        begin = _end_of_preamble(first)
        format = FORMATS.get(first[begin : begin + 1])
        if format is None and first:
            more = bytes(self._body.read(9))
            raise BadBody(_describe_unknown(first + more, self._was_packed), "line 1")
        if format == "fastq" and begin:
            raise BadBody("FASTQ begins with '@'", "line 1")
        if format == "fastq":
            file = io.BufferedReader(_Body(self._body, first, self._max_bytes), READ_BYTES)
            number = 1
            for batch in sequence_batches(
                file, format, BATCH_BYTES, self._max_records, self._max_bytes
            ):
                check_sizes(batch.texts, self._max_bytes, "record", number)
                number += len(batch.names)
                yield TextBatch(batch.texts, RecordNames(batch.names))
            return
        pieces = fasta_pieces(self._body.read, first)
        if self._uppercase:
            pieces = (piece if isinstance(piece, Name) else piece.upper() for piece in pieces)
        yield from FastaBatches(self._splitter, self._max_bytes, self._max_records).batches(pieces)


def _end_of_preamble(begin: bytes) -> int:
    found = PREAMBLE.match(begin)
    return 0 if found is None else found.end()


def _describe_unknown(begin: bytes, was_packed: bool) -> str:
    """Describe why a body with this beginning is neither FASTA nor FASTQ."""
    for magic, name in ARCHIVES.items():
        if begin.startswith(magic):
            advice = "decompress it"
            if name in ENCODINGS and not was_packed:
                advice = f"send it with Content-Encoding: {name}"
            return f"the body is compressed by {name}; {advice}"
    if begin.startswith(BYTE_ORDER_MARK):
        return "the body begins with a byte-order mark (EF BB BF); FASTA begins with '>'"
    if begin.startswith(UTF16_STARTS):
        return "the body is in UTF-16; send UTF-8"
    return "FASTA begins with '>' and FASTQ with '@'"


class _ChannelRecords:
    """Reads the records of a form, with the values of their bases."""

    def __init__(self, form: SequencesForm, records: _Records) -> None:
        self._form = form
        self._records = records

    def next_batch(self) -> TextBatch | None:
        """Read the next records, with RecordNames as metadata; return None at the end.

        Raises:
            InvalidRequest: there is no channel, or a line of it does not belong to a record.
            BadBody, TooLarge: as `_Records` and `SequencesForm`.
        """
        batch = self._records.next_batch()
        channel = self._form.channel
        if channel is None:
            raise InvalidRequest("the form has no part with this name", "/channel")
        try:
            if batch is None:
                channel.check_used()
                return None
            return batch._replace(metadata=_with_channel(channel, batch))
        except ChannelError as error:
            raise InvalidRequest(str(error), "/channel") from error


def _with_channel(channel: SparseChannel, batch: TextBatch) -> RecordNames:
    """Add the values of the bases to the metadata of a batch of records.

    Raises:
        ChannelError: a position is beyond the end of its record.
    """
    records: RecordNames = batch.metadata
    offsets = batch.texts.offsets
    last = len(records.names) - 1
    values = [
        channel.values(
            name,
            int(offsets[row + 1] - offsets[row]),
            begin=records.begin,
            continues=records.continues and row == last,
        )
        for row, name in enumerate(records.names)
    ]
    return replace(records, channel=BaseValues(np.concatenate(values), offsets))


class BulkFasta(ArrowStream):
    """Answers a request whose body is a FASTA or FASTQ file."""

    query_model = FastaQuery
    extras = ("arrow", "dna")
    _layout: WindowLayout  # The layout of windows; set by `source`.

    def __init__(self, service: Service, request: Request) -> None:
        super().__init__(service, request)
        self._boundary = find_boundary(request.headers.get("content-type", ""))

    @override
    def max_read_bytes(self, settings: Settings) -> int:
        return max(settings.max_body_bytes, READ_BYTES)  # Not chosen by the client.

    @override
    def source(self, body: BodyReader) -> Source:
        query: FastaQuery = self.query
        settings = self.service.settings
        form = None
        if self._boundary is not None:
            form = SequencesForm(body, self._boundary, settings.max_body_bytes)
        self._check_options(has_channel=form is not None)
        splitter = None
        if query.window is not None:
            self._layout = self._make_layout(query.window)
            splitter = find_splitter(self.vocabulary, self.options())
        was_packed = form is not None or self.call.encoding is not None
        records = _Records(
            form or body,
            settings.max_text_bytes,
            splitter,
            was_packed=was_packed,
            uppercase=query.uppercase and splitter is not None,
            max_records=min(BATCH_RECORDS, settings.max_texts),
        )
        return records if form is None else _ChannelRecords(form, records)

    def _check_options(self, *, has_channel: bool) -> None:
        """Refuse options that would have no effect.

        Raises:
            InvalidRequest: the request contains such an option.
        """
        query: FastaQuery = self.query
        if query.window is None:
            for name in WINDOW_OPTIONS:
                if getattr(query, name) != FastaQuery.model_fields[name].default:
                    raise InvalidRequest("is only allowed together with window", f"/{name}")
            if has_channel:
                raise InvalidRequest("is only allowed together with window", "/channel")
        elif query.add_special_tokens and "add_special_tokens" in query.model_fields_set:
            message = "is not possible with window; add_cls=true puts [CLS] before each window"
            raise InvalidRequest(message, "/add_special_tokens")
        if query.window is not None and query.seed is not None:
            raise InvalidRequest(
                "is not possible with window, because it changes whole records", "/seed"
            )
        if query.channel_name is not None and not has_channel:
            raise InvalidRequest("is only allowed in a form with a channel", "/channel_name")
        if query.channel_name in TAKEN_NAMES:
            raise InvalidRequest("is already the name of another column", "/channel_name")

    def _make_layout(self, window: int) -> WindowLayout:
        query: FastaQuery = self.query
        with refused_layouts():
            layout = make_layout(
                self.vocabulary,
                window=window,
                stride=query.stride or window,
                circular=query.circular,
                junction=query.junction,
                add_cls=query.add_cls,
                padding=query.padding is not None,
            )
        if layout.circular and query.max_length is not None:
            raise InvalidRequest(
                "is not possible for circular sequences with window", "/max_length"
            )
        return layout

    @override
    def messages(self) -> Messages:
        query: FastaQuery = self.query
        if query.window is None:
            return RecordMessages(self.dtype)
        limit = self.service.settings.max_window_ids
        channel_name = None
        if self._boundary is not None:
            channel_name = query.channel_name or CHANNEL_NAME
        columns = WindowColumns(query.padding is not None, query.return_positions, channel_name)
        strand = self.query.reverse_complement
        return WindowMessages(self.dtype, self._layout, columns, limit, reverse_complement=strand)

    @override
    def options(self) -> EncodeOptions:
        options: EncodeOptions = self.query.options()
        if self.query.window is None:
            return options
        # Windows are cut from ids without begin and end tokens.
        spans = self.query.return_positions or self._boundary is not None
        return replace(options, add_special_tokens=False, spans=spans)
