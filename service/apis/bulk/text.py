"""Answers POST /v1/encode for a body that is the text itself, with binary ids or with JSON.

    octet-stream or text/plain ─► array, each byte copied once ─► batcher ─► ids, 1 MiB at a time
                               └► if each character is one id: chunks of 2 MiB, each encoded while
                                  the next one is read ─► ids

The options are in the query string. Without ``Accept: application/octet-stream`` the answer is that
of the JSON call.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.apis.bulk.text_chunks import Cutter, encode_while_reading
from service.batching.work import EncodeWork, Result
from service.core.call import read_timeout
from service.core.errors import InvalidRequest, RowRefused, UnsupportedFormat
from service.http.asgi_fast_path import send_pieces
from service.http.body.request_body import RequestBody, collect
from service.http.streaming_response import StreamedResponse, check_length, send_arrays
from service.operations.encode import ENCODE, check_dtype, render_text, truncated_row
from service.operations.operation import LARGE_BYTES, check_digest, find_entry, make_bulk_work
from service.operations.query_schemas import DTYPES, TextQuery, parse_query
from service.operations.schemas import EncodeRequest
from service.operations.unknown_ids import MAX_STREAM_IDS, find_unknown_share, make_warning
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.types import Receive, Scope, Send

    from service.core.settings import Settings
    from service.operations.context import Service
    from service.registry.entries import LoadedVocabulary

WHERE = "body"
CHARSETS = {"utf-8", "utf8", "us-ascii"}


def _smaller_limit(settings: Settings) -> tuple[str, int]:
    """Return the name and the value of the setting that limits a text which is the whole body.

    If both limits are equal, the result is `max_text_bytes`.
    """
    names = ("max_text_bytes", "max_body_bytes")
    name = min(names, key=lambda each: getattr(settings, each))
    return name, getattr(settings, name)


class BulkText(StreamedResponse):
    """Answers a request whose whole body is one text."""

    query_model = TextQuery

    def __init__(self, service: Service, request: Request) -> None:
        super().__init__(service, request)
        _check_charset(request.headers.get("content-type", ""))
        self.query = parse_query(TextQuery, request.query_params)
        read_timeout(self.call)
        self.dtype = DTYPES[self.query.dtype]
        self.as_octets = "application/octet-stream" in request.headers.get("accept", "").lower()
        if self.as_octets and (self.query.return_offsets or self.query.return_tokens):
            raise InvalidRequest("return_offsets and return_tokens need a JSON answer", "Accept")

    @override
    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, call, query = self.service, self.call, self.query
        setting, limit = _smaller_limit(service.settings)
        check_length(call.content_length, limit, setting)
        entry = await find_entry(service, call, query.vocabulary)
        check_digest(entry, query.if_digest)
        check_dtype(entry.vocabulary, query.dtype)
        idle_s = service.settings.stream_idle_timeout_s
        body = RequestBody(receive, call.encoding, limit, scope, idle_s, setting)
        cutter = Cutter.make(entry.vocabulary, query.options()) if self.as_octets else None
        if cutter is not None:
            await self._send_chunked(send, entry, body, cutter)
            return
        text = await collect(body, call.content_length, service.engine.host_memory)
        call.receive = receive  # Only now, as watching for a disconnect reads from the connection.
        if self.as_octets:
            await self._send_octets(send, entry, text)
        else:
            await self._send_json(send, entry, text)

    async def _send_octets(
        self, send: Send, entry: LoadedVocabulary, text: NDArray[np.uint8]
    ) -> None:
        """Encode the whole text at once, and send its ids as bytes."""
        batch = Batch(data=text, offsets=np.array([0, len(text)]))
        result = await self._encode(entry, self.query.options(), batch)
        if result.begin in result.errors:
            raise RowRefused(result.errors[result.begin], WHERE)
        await self._send([self._ids(result)], send, entry, result)

    async def _send_chunked(
        self, send: Send, entry: LoadedVocabulary, body: RequestBody, cutter: Cutter
    ) -> None:
        """Encode the text in chunks while it arrives; then send the ids of all chunks."""
        options, vocabulary = self.query.options(), entry.vocabulary
        chunk_options = replace(options, add_special_tokens=False)
        encode = partial(self._encode, entry, chunk_options)
        take = self.service.engine.host_memory
        results = await encode_while_reading(body, cutter, encode, take)
        ids = [self._ids(result) for result in results]
        if options.add_special_tokens:
            prefix = np.array(vocabulary.prefix, self.dtype)
            suffix = np.array(vocabulary.suffix, self.dtype)
            ids = [prefix, *ids, suffix]
        await self._send(ids, send, entry, results[-1])

    async def _encode(
        self, entry: LoadedVocabulary, options: EncodeOptions, batch: Batch
    ) -> Result[Encoded]:
        # Do not convert ids of one byte before they are sent.
        batch.id_dtype = np.uint8 if len(entry.vocabulary) <= 256 else self.dtype
        work = make_bulk_work(self.service, self.call, EncodeWork, entry, batch, options)
        return await self.service.batcher.run(work)

    def _ids(self, result: Result[Encoded]) -> NDArray[np.integer[Any]]:
        return result.output.row(result.begin)

    async def _send(
        self,
        parts: list[NDArray[np.integer[Any]]],
        send: Send,
        entry: LoadedVocabulary,
        result: Result[Encoded],
    ) -> None:
        headers = [
            (b"x-warptok-dtype", self.query.dtype.encode()),
            (b"x-warptok-num-tokens", b"%d" % sum(map(len, parts))),
            (b"x-warptok-engine", result.engine.encode()),
            (b"x-warptok-digest", entry.vocabulary.digest.encode()),
        ]
        if (truncated := truncated_row(result, result.begin)) is not None:
            begin, end = truncated["kept"]
            value = b"num_tokens=%d, kept=%d-%d" % (truncated["num_tokens"], begin, end)
            headers.append((b"x-warptok-truncated", value))
        longest = max(parts, key=len)
        share = find_unknown_share(entry.vocabulary, longest[:MAX_STREAM_IDS])
        headers += make_warning(share)
        await send_arrays(send, parts, headers, self.dtype)

    async def _send_json(
        self, send: Send, entry: LoadedVocabulary, text: NDArray[np.uint8]
    ) -> None:
        """Send the same answer as the JSON call for this text and these options."""
        try:
            decoded = str(text.data, "utf-8")
        except UnicodeDecodeError as error:
            if self.query.invalid_utf8 == "bytes":
                await self._send_invalid_json(send, entry, text)
                return
            message = f"the text is not UTF-8: {error.reason}"
            raise RowRefused(RowError("not_utf8", message, f"byte {error.start}"), WHERE) from error
        work, render = ENCODE.plan(self.service, self.call, entry, self._make_request(decoded))
        pieces = render(await self.service.batcher.run(work))
        seconds = await send_pieces(send, pieces, len(text) > LARGE_BYTES)
        self.service.observer.add_serialize_time(self.call, seconds)

    def _make_request(self, text: str) -> EncodeRequest:
        """Create the request of the JSON call with this text and these options."""
        names = self.query.model_fields_set - {"invalid_utf8"}
        return EncodeRequest(text=text, **{name: getattr(self.query, name) for name in names})

    async def _send_invalid_json(
        self, send: Send, entry: LoadedVocabulary, text: NDArray[np.uint8]
    ) -> None:
        """Send the same answer as the JSON call for a text that is not UTF-8."""
        query = self.query
        if query.return_offsets not in (None, "bytes"):
            message = "must be bytes for a text that is not UTF-8"
            raise InvalidRequest(message, "/return_offsets")
        batch = Batch(data=text, offsets=np.array([0, len(text)]))
        options = replace(query.options(), spans=query.return_offsets is not None)
        result = await self._encode(entry, options, batch)
        if result.begin in result.errors:
            raise RowRefused(result.errors[result.begin], WHERE)
        pieces = render_text(entry, self._make_request(""), result)
        await send_pieces(send, pieces, len(text) > LARGE_BYTES)


def _check_charset(content_type: str) -> None:
    """Refuse a text in a charset other than UTF-8, whose bytes could be valid UTF-8 by chance.

    Raises:
        UnsupportedFormat: the content type names another charset.
    """
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"')
        if name.strip().lower() == "charset" and charset.lower() not in CHARSETS:
            raise UnsupportedFormat(
                f"the charset {charset} is not supported; send UTF-8", "Content-Type"
            )
