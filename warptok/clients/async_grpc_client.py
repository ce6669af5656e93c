"""A client of a service by gRPC for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vocabularies.sequences.augmentation import Augmentation
from vocabularies.sequences.window_layout import Junction
from vocabularies.sequences.windows import Windows
from warptok.clients.grpc_calls import (
    CHANNEL_OPTIONS,
    SERVICE,
    GrpcCall,
    GrpcCalls,
    GrpcRequest,
    Result,
)
from warptok.clients.grpc_errors import make_error
from warptok.clients.transport import RetryPolicy, key_headers
from warptok.options import (
    BatchOptions,
    IdType,
    Padding,
    Refused,
    Side,
    Special,
    TextOptions,
    TokenForm,
    Unit,
)
from warptok.results import EncodedBatch, PaddedBatch, TextChunks, import_library

if TYPE_CHECKING:
    import grpc.aio


class AsyncGrpcClient:
    """A client for asyncio of a service over gRPC, with the same methods as `Tokenizer`.

    Args:
        target: the address of the service's gRPC port, such as "127.0.0.1:8001".
        vocabulary: the name of the vocabulary for all calls.
        api_key: the API key; None: send no key.
        if_digest: the digest that the vocabulary must have, or the call fails; None: any.
        timeout_s: the timeout of one request; the service stops computing at the same time.
        retries: how many times a request is retried if the service is busy, starting or stopping,
            or if the connection breaks. Every call is safe to retry, as it changes nothing.
        channel: a grpc.aio.Channel to use, for example with certificates; the caller closes it.
            None: the client creates one without TLS.

    Raises:
        NotInstalled: grpcio is not installed.
        InvalidRequest: no header can have the key.

    Calls raise the errors of `warptok.errors`, with the codes of docs/errors.md. Several tasks
    may use one client. Calls with `padding` must also pass `pad_id` and `padding_side`.
    """

    def __init__(
        self,
        target: str,
        vocabulary: str,
        *,
        api_key: str | None = None,
        if_digest: str | None = None,
        timeout_s: float = 30.0,
        retries: int = 3,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        self._grpc = import_library("grpc", "AsyncGrpcClient")
        import_library("grpc_status", "AsyncGrpcClient")
        self.target, self.vocabulary = target, vocabulary
        self._calls = GrpcCalls(vocabulary, if_digest)
        self._metadata = tuple(key_headers(api_key).items())
        self._timeout_s, self._policy = timeout_s, RetryPolicy(retries)
        self._owns_channel = channel is None
        if channel is None:
            channel = self._grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._channel: grpc.aio.Channel = channel

    def __repr__(self) -> str:
        return f"<warptok.AsyncGrpcClient {self.vocabulary!r} of {self.target}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, unless the caller passed the channel."""
        if self._owns_channel:
            await self._channel.close()

    async def encode(self, text: str | bytes, **options: Unpack[TextOptions]) -> list[int]:
        """Return the ids of one text; see `Tokenizer.encode`."""
        return await self._run(self._calls.encode(text, options))

    async def count(self, text: str | bytes, **options: Unpack[TextOptions]) -> int:
        """Count the ids of one text; see `Tokenizer.count`."""
        return await self._run(self._calls.count(text, options))

    async def offsets(
        self, text: str | bytes, unit: Unit = "codepoints", **options: Unpack[TextOptions]
    ) -> NDArray[np.int64]:
        """Return the begin and end of each id in one text, int64[T, 2]; see `Tokenizer.offsets`."""
        return await self._run(self._calls.offsets(text, unit, options))

    @overload
    async def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: None = None,
        augmentation: Augmentation | Mapping[str, Any] | None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        token_form: TokenForm = "text",
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> EncodedBatch: ...

    @overload
    async def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: Padding,
        padding_side: Side | None = None,
        pad_id: int | None = None,
        augmentation: Augmentation | Mapping[str, Any] | None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        token_form: TokenForm = "text",
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> PaddedBatch: ...

    async def encode_batch(
        self,
        texts: Any,
        *,
        offsets: ArrayLike | None = None,
        padding: Padding | None = None,
        padding_side: Side | None = None,
        pad_id: int | None = None,
        augmentation: Augmentation | Mapping[str, Any] | None = None,
        return_offsets: Unit | None = None,
        return_tokens: bool = False,
        token_form: TokenForm = "text",
        dtype: IdType = "int32",
        errors: Refused = "raise",
        **options: Unpack[BatchOptions],
    ) -> EncodedBatch | PaddedBatch:
        """Return the ids of several texts; see `Tokenizer.encode_batch`.

        A large batch, or a batch whose texts have different options, is split into requests that
        are sent one after another.
        """
        return await self._run(
            self._calls.encode_batch(
                texts,
                offsets,
                padding,
                padding_side,
                pad_id,
                augmentation,
                return_offsets,
                return_tokens,
                token_form,
                dtype,
                errors,
                options,
            )
        )

    async def count_batch(
        self, texts: Any, *, offsets: ArrayLike | None = None, **options: Unpack[BatchOptions]
    ) -> NDArray[np.int64]:
        """Count the ids of several texts, int64[B]; see `Tokenizer.count_batch`."""
        return await self._run(self._calls.count_batch(texts, offsets, options))

    async def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of one row of ids; see `Tokenizer.decode`."""
        return await self._run(self._calls.decode(ids, skip_special_tokens))

    async def decode_bytes(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> bytes:
        """Return the bytes of one row of ids; see `Tokenizer.decode_bytes`."""
        return await self._run(self._calls.decode_bytes(ids, skip_special_tokens))

    async def decode_batch(self, rows: Any, *, skip_special_tokens: bool = False) -> list[str]:
        """Return the texts of several rows of ids; see `Tokenizer.decode_batch`."""
        return await self._run(self._calls.decode_batch(rows, skip_special_tokens))

    async def chunks(
        self,
        text: str | bytes,
        *,
        chunk_size: int = 512,
        chunk_overlap: int = 0,
        add_special_tokens: bool = True,
        special: Special = "match",
        offset_unit: Unit = "codepoints",
        return_texts: bool = False,
    ) -> TextChunks:
        """Cut one text into chunks; see `Tokenizer.chunks`."""
        return await self._run(
            self._calls.chunks(
                text,
                chunk_size,
                chunk_overlap,
                add_special_tokens,
                special,
                offset_unit,
                return_texts,
            )
        )

    async def windows(
        self,
        sequence: str | bytes,
        *,
        window: int = 512,
        stride: int = 256,
        circular: bool | None = None,
        junction: Junction | None = None,
        channel: ArrayLike | None = None,
        add_cls: bool = False,
        reverse_complement: bool = False,
        uppercase: bool = False,
    ) -> Windows:
        """Cut one sequence into windows; see `Tokenizer.windows`."""
        return await self._run(
            self._calls.windows(
                sequence,
                window,
                stride,
                circular,
                junction,
                channel,
                add_cls,
                reverse_complement,
                uppercase,
            )
        )

    async def vocabularies(self) -> list[dict[str, Any]]:
        """List the vocabularies of the service."""
        return await self._run(self._calls.vocabularies())

    async def info(self) -> dict[str, Any]:
        """Describe the service, in the form of `GET /v1/info`."""
        return await self._run(self._calls.info())

    async def _run(self, call: GrpcCall[Result]) -> Result:
        """Send each request that a call yields, and return the result of the call."""
        try:
            request = next(call)
            while True:
                request = call.send(await self._send(request))
        except StopIteration as done:
            result: Result = done.value
            return result

    async def _send(self, request: GrpcRequest) -> Any:
        """Send a request; retry it after a transient error, as the retry policy allows.

        Raises:
            WarptokError: the service refuses the request or cannot be reached.
        """
        send = self._channel.unary_unary(
            SERVICE + request.name,
            request_serializer=type(request.message).SerializeToString,
            response_deserializer=request.answer.FromString,
        )
        for attempt in count():
            try:
                return await send(request.message, timeout=self._timeout_s, metadata=self._metadata)
            except self._grpc.RpcError as failure:
                error = make_error(failure, self.target)
                wait_s = self._policy.wait_s(attempt, error)
                if wait_s is None:
                    raise error from failure
            await asyncio.sleep(wait_s)
        raise AssertionError("the loop has no end")
