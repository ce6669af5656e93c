"""Converts generation requests to the ids that a model would receive, or counts those ids.

Routers in front of vLLM and SGLang use the render routes; clients of OpenAI and Anthropic use the
counting routes.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from service.apis.dialects.chat_prompt import (
    MESSAGES,
    ChatBody,
    encode_chat,
    has_template,
    render_chat_utf8,
)
from service.apis.dialects.common import (
    NO_LIMIT,
    DialectBody,
    DialectRequest,
    encode_texts,
    model_length,
    parse_body,
    read_request,
)
from service.apis.dialects.media_estimate import MediaEstimate
from service.apis.dialects.sampling import Sampling, make_sampling_params
from service.apis.dialects.templates.chat_messages import (
    convert_anthropic,
    convert_responses,
    convert_tools,
)
from service.core.errors import InvalidRequest
from service.http.json_response import make_json_response
from service.operations import schemas
from service.operations.rendering.json_stream import write_ids
from service.operations.rendering.offset_units import convert_spans
from service.registry.entries import LoadedVocabulary

router = APIRouter(tags=["dialects"])

COMPLETION_TOKENS = 16  # vLLM's default of a completion's max_tokens.
# A prompt may be ids, which the answer then repeats.
TokenIds = Annotated[list[Annotated[schemas.Length, Field(strict=True)]], Field(fail_fast=True)]


Row = TypeVar("Row", list[Any], NDArray[np.integer[Any]])


class PromptTruncation(DialectBody):
    """vLLM's options that limit the number of a prompt's ids.

    Attributes:
        truncate_prompt_tokens: the maximum number of ids of the prompt; -1: as many as fit into the
            model's length together with the ids of the answer; None: no limit.
        truncation_side: the side on which ids are removed, including begin and end tokens; None:
            the left side, but begin tokens are kept.
    """

    truncate_prompt_tokens: Annotated[int, Field(ge=-1, strict=True)] | None = None
    truncation_side: Literal["left", "right"] | None = None

    def truncate(self, row: Row, max_length: int | None) -> Row:
        """Truncate the ids of a prompt, or their offsets, to `max_length`."""
        if max_length is None or max_length >= len(row):
            return row
        return row[:max_length] if self.truncation_side == "right" else row[len(row) - max_length :]


class CompletionBody(PromptTruncation):
    """The fields of a completion request that affect its ids."""

    refused_fields: ClassVar[dict[str, str]] = {
        "suffix": "is not supported, as in vLLM",
        "prompt_embeds": "embeddings have no ids",
    }

    max_tokens: schemas.Length | None = None
    prompt: TokenIds | Annotated[list[TokenIds], Field(fail_fast=True)] | schemas.Texts | str
    add_special_tokens: bool = True
    return_token_offsets: bool = False


class TransferParams(BaseModel):
    """The part of `kv_transfer_params` that affects the ids: those of a rendered prompt."""

    prompt_token_ids: Annotated[TokenIds, Field(min_length=1)] | None = None


class RenderChat(ChatBody, PromptTruncation):
    """The fields of a chat completion request that affect its ids."""

    kv_transfer_params: TransferParams | None = None

    max_tokens: schemas.Length | None = None
    max_completion_tokens: schemas.Length | None = None
    return_token_offsets: bool = Field(False)


class AnthropicBody(ChatBody):
    """The fields of an Anthropic conversation that affect its ids."""

    refused_fields: ClassVar[dict[str, str]] = {
        "mcp_servers": "the tools of a server are not known here",
        "container": "the skills of a container are not known here",
        "context_management": "nothing is removed from a conversation here",
    }


class Reasoning(BaseModel):
    """The reasoning options of an OpenAI Responses request; other options are ignored."""

    effort: str | None = None


class ResponsesBody(DialectBody):
    """The fields of an OpenAI Responses request that affect its ids."""

    refused_fields: ClassVar[dict[str, str]] = {
        "conversation": "conversations are not kept here; send their items as input",
        "previous_response_id": "responses are not kept here; send their items as input",
        "prompt": "templates of prompts are not kept here; send instructions and input",
    }

    input: Any
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["auto", "disabled"] | None = None


class RenderedTexts(NamedTuple):
    """The truncated ids of a request's texts.

    Attributes:
        arrays: the ids of each text.
        offsets: for each text the start and the end of each id in code points; None for each text
            if the request does not request offsets.
        headers: headers of the answer that warn the client; usually none.
    """

    arrays: list[NDArray[np.integer[Any]]]
    offsets: list[list[Any] | None]
    headers: dict[str, str]


@router.post("/v1/completions/render")
async def render_completion(http_request: Request) -> Response:
    """Convert the prompts of a completion to ids: a list with one element for each prompt."""
    request = await read_request(http_request)
    body = parse_body(CompletionBody, request)
    _refuse_empty_prompts(body.prompt)
    entry = await request.find_entry(body.model)
    num_answered = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    max_length = _max_prompt_length(request, entry, body, num_answered)
    prompts: list[Any] = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if prompts and all(isinstance(prompt, int) for prompt in prompts):
        prompts = [prompts]
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    rendered = await _render_texts(request, entry, texts, body, max_length)
    sampling = parse_body(Sampling, request)
    generation = Generation(request, entry, sampling, num_answered, is_chat=False)
    answer = []
    next_text = 0
    for prompt in prompts:
        if isinstance(prompt, str):
            array, offsets = rendered.arrays[next_text], rendered.offsets[next_text]
            answer.append(generation.make(len(array), write_ids(array), offsets))
            next_text += 1
        else:
            ids = body.truncate(prompt, max_length)
            answer.append(generation.make(len(ids), orjson.dumps(ids), None))
    return make_json_response(answer, rendered.headers)


def _refuse_empty_prompts(prompt: str | list[Any]) -> None:
    """Check that no prompt is empty: vLLM refuses it as well, as no inference engine can answer it.

    Raises:
        InvalidRequest: a prompt is empty.
    """
    message = "has no ids; an engine needs at least one"
    if not prompt:
        raise InvalidRequest(message, "/prompt")
    for number, each in enumerate(prompt if isinstance(prompt, list) else []):
        if each in ("", []):
            raise InvalidRequest(message, f"/prompt/{number}")


def _max_prompt_length(
    request: DialectRequest, entry: LoadedVocabulary, body: PromptTruncation, num_answered: int
) -> int | None:
    """Return the maximum number of ids of a prompt, given the ids of its answer; None: no limit.

    Raises:
        InvalidRequest: the prompt and the answer do not fit into the model's length.
    """
    requested, length = body.truncate_prompt_tokens, model_length(entry)
    if requested is None or (requested < 0 and length == NO_LIMIT):
        return None
    available = length - num_answered
    if length < NO_LIMIT and (available < 0 or requested > available):
        message = f"{requested} of a length of {length} with {num_answered} ids answered"
        raise InvalidRequest(f"{message} leaves no room", "/truncate_prompt_tokens")
    return min(available if requested < 0 else requested, NO_LIMIT)


async def _render_texts(
    request: DialectRequest,
    entry: LoadedVocabulary,
    texts: list[str],
    body: CompletionBody | RenderChat,
    max_length: int | None,
    where: str = "/prompt",
) -> RenderedTexts:
    """Encode texts with the options of a request, and truncate the ids; `where` is their place."""
    encoded = await encode_texts(
        request,
        entry,
        texts,
        add_special_tokens=body.add_special_tokens,
        spans=body.return_token_offsets,
        max_length=None if body.truncation_side else max_length,
        where=where,
    )
    arrays = [body.truncate(array, max_length) for array in encoded.arrays]
    if not body.return_token_offsets:
        return RenderedTexts(arrays, [None] * len(arrays), encoded.headers)
    result = encoded.result
    spans = result.output.spans
    assert spans is not None
    begins = result.output.offsets[result.begin : result.end + 1].tolist()
    offsets: list[list[Any] | None] = []
    for i, text in enumerate(texts):
        points = convert_spans(spans[begins[i] : begins[i + 1]], text, "codepoints")
        offsets.append(body.truncate(points.tolist(), max_length))
    return RenderedTexts(arrays, offsets, encoded.headers)


class Generation(NamedTuple):
    """The fields that are the same for all prompts of one rendered request.

    Attributes:
        request: the rendered request.
        entry: the vocabulary.
        sampling: the fields of the request that control sampling.
        max_tokens: the requested maximum number of ids of the answer; None: no limit.
        is_chat: whether the request is a chat.
    """

    request: DialectRequest
    entry: LoadedVocabulary
    sampling: Sampling
    max_tokens: int | None
    is_chat: bool

    def make(self, num_ids: int, ids: bytes, offsets: list[Any] | None) -> dict[str, Any]:
        """Create the request for one prompt that the inference engines of vLLM and SGLang accept.

        Args:
            num_ids: the number of ids of the prompt.
            ids: the ids as JSON, which both fields of the request share.
            offsets: the start and the end of each id; None: offsets are not requested.

        Raises:
            InvalidRequest: the sampling parameters are invalid.
        """
        body = self.request.body
        is_stream = bool(self.sampling.stream)
        prefix = "chatcmpl" if self.is_chat else "cmpl"
        config = self.entry.config
        generation = {} if config is None else config.generation_defaults()
        max_tokens = self._find_max_tokens(num_ids, generation)
        return {
            "request_id": f"{prefix}-{uuid.uuid4().hex}",
            "model": body.get("model") or self.request.service.settings.default_vocabulary,
            "token_ids": orjson.Fragment(ids),
            "input_ids": orjson.Fragment(ids),
            "token_offsets": offsets,
            "features": None,
            "content_parts": None,
            "sampling_params": make_sampling_params(
                self.sampling, generation, max_tokens, is_chat=self.is_chat
            ),
            "reasoning_ended": None,
            "reasoning_parser_kwargs": None,
            "return_token_ids": body.get("return_token_ids"),
            "output_mode": "tokens",
            "stream": is_stream,
            "stream_options": body.get("stream_options") if is_stream else None,
            "cache_salt": body.get("cache_salt"),
            "priority": body.get("priority") or 0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
        }

    def _find_max_tokens(self, num_ids: int, generation: dict[str, Any]) -> int | None:
        """Return the maximum number of ids of the answer, within the model's length."""
        wanted = generation.get("max_new_tokens") if self.max_tokens is None else self.max_tokens
        length = model_length(self.entry)
        available = length - num_ids
        if length == NO_LIMIT or available < 1:
            return wanted
        return available if wanted is None else min(wanted, available)


@router.post("/v1/chat/completions/render")
async def render_chat(http_request: Request) -> Response:
    """Convert a chat to ids with the vocabulary's template."""
    request = await read_request(http_request, leaves_messages=True)
    body = parse_body(RenderChat, request)
    entry = await request.find_entry(body.model)
    wanted = body.max_completion_tokens
    wanted = body.max_tokens if wanted is None else wanted
    max_length = _max_prompt_length(request, entry, body, wanted or 0)
    forwarded = _take_forwarded_ids(request, body)
    sampling = parse_body(Sampling, request)
    generation = Generation(request, entry, sampling, wanted, is_chat=True)
    if forwarded and not sampling.echo:
        return make_json_response(generation.make(len(forwarded), orjson.dumps(forwarded), None))
    text = await render_chat_utf8(request, entry, body)
    if max_length is None and not body.return_token_offsets:
        chat = await encode_chat(request, entry, text, add_special_tokens=body.add_special_tokens)
        return make_json_response(generation.make(chat.num_ids, chat.json, None), chat.headers)
    texts = [text.decode(errors="replace")]
    rendered = await _render_texts(request, entry, texts, body, max_length, MESSAGES)
    (ids,) = rendered.arrays
    answer = generation.make(len(ids), write_ids(ids), rendered.offsets[0])
    return make_json_response(answer, rendered.headers)


def _take_forwarded_ids(request: DialectRequest, body: RenderChat) -> list[int] | None:
    """Remove the ids of a prompt that another stage has rendered, and return them.

    Engines that share the work on a request pass them on; as in vLLM nothing is rendered again,
    unless the answer shall contain the last message (`echo`).
    """
    if body.kv_transfer_params is None:
        return None
    request.body["kv_transfer_params"].pop("prompt_token_ids", None)
    return body.kv_transfer_params.prompt_token_ids


@router.post("/v1/messages/count_tokens")
async def count_messages(http_request: Request) -> Response:
    """Count the ids of an Anthropic conversation, including its system prompt and tools."""
    request = await read_request(http_request)
    system = request.body.pop("system", None)
    body = parse_body(AnthropicBody, request)
    entry = await request.find_entry(body.model)
    estimate = MediaEstimate()
    if request.service.settings.estimate_media:
        body.messages = await asyncio.to_thread(estimate.remove_from, body.messages)
    body.messages = convert_anthropic(body.messages, system)
    body.tools = convert_tools(body.tools, ("custom", "function"))
    num_tokens = await _count(request, entry, body) + estimate.tokens
    return make_json_response({"input_tokens": num_tokens, **estimate.describe()})


async def _count(request: DialectRequest, entry: LoadedVocabulary, body: ChatBody) -> int:
    text = await render_chat_utf8(request, entry, body)
    return (
        await encode_chat(request, entry, text, add_special_tokens=body.add_special_tokens)
    ).num_ids


@router.post("/v1/responses/input_tokens")
async def count_responses(http_request: Request) -> Response:
    """Count the ids of an OpenAI Responses request, rendered with the vocabulary's template.

    A text counts as a message of the user. If the vocabulary has no template, a text is encoded
    without one.
    """
    request = await read_request(http_request)
    body = parse_body(ResponsesBody, request)
    entry = await request.find_entry(body.model)
    is_text = isinstance(body.input, str)
    if not is_text and not isinstance(body.input, list):
        raise InvalidRequest("must be a text or a list of messages", "/input")
    if is_text and not (body.instructions or body.tools or has_template(entry)):
        encoded = await encode_texts(
            request, entry, [body.input], add_special_tokens=True, where="/input"
        )
        return _make_count_response(request, entry, body, len(encoded.arrays[0]), MediaEstimate())
    items = [{"role": "user", "content": body.input}] if is_text else body.input
    estimate = MediaEstimate()
    if request.service.settings.estimate_media:
        items = await asyncio.to_thread(estimate.remove_from, items)
    messages = convert_responses(items)
    if body.instructions:
        messages = [{"role": "system", "content": body.instructions}, *messages]
    if not messages:
        raise InvalidRequest("must have an item", "/input")
    request.body["messages"] = messages
    if body.reasoning is not None:
        request.body["reasoning_effort"] = body.reasoning.effort
    chat = parse_body(ChatBody, request)
    chat.tools = convert_tools(chat.tools)
    try:
        num_tokens = await _count(request, entry, chat) + estimate.tokens
    except InvalidRequest as error:
        if not error.where.startswith(MESSAGES):
            raise
        raise InvalidRequest(error.message, "/input") from error
    return _make_count_response(request, entry, body, num_tokens, estimate)


def _make_count_response(
    request: DialectRequest,
    entry: LoadedVocabulary,
    body: ResponsesBody,
    num_tokens: int,
    estimate: MediaEstimate,
) -> Response:
    """Return the answer with a number of ids.

    Raises:
        InvalidRequest: the request allows the service to drop items of an input that is too long.
    """
    length = model_length(entry)
    if body.truncation == "auto" and num_tokens > length:
        message = f"{num_tokens} ids, and the model's length is {length}; no item is dropped here"
        raise InvalidRequest(message, "/truncation")
    answer = {"object": "response.input_tokens", "input_tokens": num_tokens}
    return make_json_response({**answer, **estimate.describe()})
