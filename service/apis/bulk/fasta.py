"""Answers POST /v1/encode/fasta: FASTA or FASTQ in, an Arrow stream of ids or windows out.

The first byte distinguishes FASTA and FASTQ; gzip and zstd are Content-Encodings. Records of up to
4 MiB together become one record batch. Memory does not grow with the file: for windows, a longer
record is encoded in parts if the vocabulary allows it; every other record may have at most
`max_text_bytes`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field
from typing_extensions import override

from service.apis.bulk.arrow_reader import TextBatch, check_sizes
from service.apis.bulk.arrow_stream import ArrowStream, BodyReader, Messages
from service.apis.bulk.arrow_writer import RecordMessages, WindowMessages
from service.apis.bulk.fasta_batches import BATCH_RECORDS, FastaBatches, RecordNames, make_too_long
from service.apis.bulk.sequence_chunks import Splitter, find_splitter
from service.core.errors import BadBody, InvalidRequest
from service.core.settings import Settings
from service.http.decompression import ENCODINGS
from service.operations.query_schemas import BatchQuery
from service.seqio.fasta import fasta_pieces
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

READ_BYTES = 1 << 18


class FastaQuery(BatchQuery):
    """The options of the call; with `window` the answer has windows instead of records."""

    window: int | None = Field(None, ge=1, le=1_048_576, description="Ids in a window.")
    stride: int | None = Field(
        None,
        ge=1,
        le=2**31,
        description="Ids from the start of a window to the next; as `window` if absent.",
    )


MAX_PREAMBLE_BYTES = 1 << 16  # Of blank lines and comments before the first record.
PREAMBLE_READ_BYTES = 1 << 12


class _Body(io.RawIOBase):
    """Reads the body as a file, and refuses a line that is too long before it is in memory."""

    def __init__(self, body: BodyReader, first: bytes, max_bytes: int) -> None:
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
    """Reads the records of a body in batches; a part of a long record is a batch of its own.

    Args:
        body: FASTA or FASTQ.
        max_bytes: the most bytes of a record that cannot be split.
        splitter: splits long records; None: records stay whole.
    """

    def __init__(self, body: BodyReader, max_bytes: int, splitter: Splitter | None) -> None:
        self._body = body
        self._max_bytes = max_bytes
        self._splitter = splitter
        self._batches: Iterator[TextBatch] | None = None

    def next_batch(self) -> TextBatch | None:
        """Read the next records, with RecordNames; None at the end.

        Raises:
            BadBody: the body is neither FASTA nor FASTQ; the message has the record.
            TooLarge: a record that cannot be split is longer than `max_text_bytes`.
        """
        try:
            if self._batches is None:
                self._batches = self._open()
            return next(self._batches, None)
        except ValueError as error:
            where = f"record {error.number}" if isinstance(error, BadRecord) else "body"
            raise BadBody(f"the body is no FASTA or FASTQ: {error}", where) from error

    def _open(self) -> Iterator[TextBatch]:
        first = bytes(self._body.read(1))
        while first and len(first) < MAX_PREAMBLE_BYTES and PREAMBLE.fullmatch(first):
            if not (data := bytes(self._body.read(PREAMBLE_READ_BYTES))):
                break
            first += data
        begin = _end_of_preamble(first)
        format = FORMATS.get(first[begin : begin + 1])
        if format is None and first:
            raise BadBody(_describe_unknown(first + bytes(self._body.read(9))), "line 1")
        if format == "fastq" and begin:
            raise BadBody("FASTQ begins with '@'", "line 1")
        if format == "fastq":
            file = io.BufferedReader(_Body(self._body, first, self._max_bytes), READ_BYTES)
            number = 1
            for batch in sequence_batches(file, format, BATCH_BYTES, BATCH_RECORDS):
                check_sizes(batch.texts, self._max_bytes, "record", number)
                number += len(batch.names)
                yield TextBatch(batch.texts, RecordNames(batch.names))
            return
        pieces = fasta_pieces(self._body.read, first)
        yield from FastaBatches(self._splitter, self._max_bytes).batches(pieces)


def _end_of_preamble(begin: bytes) -> int:
    found = PREAMBLE.match(begin)
    return 0 if found is None else found.end()


def _describe_unknown(begin: bytes) -> str:
    """Return why a body that begins like this is neither FASTA nor FASTQ."""
    for magic, name in ARCHIVES.items():
        if begin.startswith(magic):
            advice = f"send it with Content-Encoding: {name}" if name in ENCODINGS else "unpack it"
            return f"the body is packed by {name}; {advice}"
    if begin.startswith(BYTE_ORDER_MARK):
        return "the body begins with a byte-order mark (EF BB BF); FASTA begins with '>'"
    if begin.startswith(UTF16_STARTS):
        return "the body is in UTF-16; only UTF-8 is read"
    return "FASTA begins with '>' and FASTQ with '@'"


class BulkFasta(ArrowStream):
    """Answers a request whose body is a FASTA or FASTQ file."""

    query_model = FastaQuery
    extras = ("arrow", "dna")

    @override
    def max_read_bytes(self, settings: Settings) -> int:
        return max(settings.max_body_bytes, READ_BYTES)  # The client does not choose the size.

    @override
    def source(self, body: BodyReader) -> _Records:
        query: FastaQuery = self.query
        if query.stride is not None and query.window is None:
            raise InvalidRequest("belongs to window", "/stride")
        splitter = None
        if query.window is not None:
            splitter = find_splitter(self.vocabulary, self.options())
        return _Records(body, self.service.settings.max_text_bytes, splitter)

    @override
    def messages(self) -> Messages:
        query: FastaQuery = self.query
        if query.window is None:
            return RecordMessages(self.dtype)
        limit = self.service.settings.max_window_ids
        return WindowMessages(self.dtype, query.window, query.stride or query.window, limit)

    @override
    def options(self) -> EncodeOptions:
        options: EncodeOptions = self.query.options()
        if self.query.window is None:
            return options
        # Windows are cut from ids without begin and end tokens.
        return replace(options, add_special_tokens=False)
