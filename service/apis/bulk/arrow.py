"""Answers POST /v1/encode/batch for Arrow: each record batch of texts becomes one of ids."""

from __future__ import annotations

from typing_extensions import override

from service.apis.bulk.arrow_reader import TextReader
from service.apis.bulk.arrow_stream import ArrowStream, BodyReader
from service.apis.bulk.arrow_writer import IdMessages


class BulkArrow(ArrowStream):
    """Answers a stream of record batches that contain a column of texts."""

    @override
    def source(self, body: BodyReader) -> TextReader:
        return TextReader(body.read, self.service.settings.max_text_bytes)

    @override
    def messages(self) -> IdMessages:
        return IdMessages(self.dtype)
