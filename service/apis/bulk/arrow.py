"""POST /v1/encode/batch with an Arrow stream: a record batch of ids for each of texts, in order."""

from __future__ import annotations

from service.apis.bulk.arrow_reader import TextReader
from service.apis.bulk.arrow_stream import ArrowStream, BodyReader
from service.apis.bulk.arrow_writer import IdMessages


class BulkArrow(ArrowStream):
    """The answer to a stream of record batches."""

    def source(self, body: BodyReader) -> TextReader:
        """The column `text`."""
        return TextReader(body.read)

    def messages(self) -> IdMessages:
        """The columns `ids` and `error`."""
        return IdMessages(self.dtype)
