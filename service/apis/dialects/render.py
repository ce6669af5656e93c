"""Renders generation requests as the ids that a model would get, and counts them.

Routers in front of vLLM and SGLang use these routes; the counts are for clients of OpenAI and
Anthropic.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from service.apis.dialects.chat_messages import convert_anthropic, convert_responses, convert_tools
from service.apis.dialects.chat_prompt import ChatBody, chat_text
from service.apis.dialects.common import (
    NO_LIMIT,
    DialectBody,
    DialectRequest,
    encode_texts,
    model_length,
    parse_body,
    read_request,
)
from service.core.errors import InvalidRequest
from service.http.json_response import make_json_response
from service.operations import schemas
from service.operations.rendering.offset_units import convert_spans
from service.registry.entries import LoadedVocabulary

router = APIRouter(tags=["dialects"])

COMPLETION_TOKENS = 16  # vLLM's default of a completion's max_tokens.
# Ids of a request are repeated in the answer.
TokenIds = Annotated[list[Annotated[schemas.Length, Field(strict=True)]], Field(fail_fast=True)]


class PromptTruncation(DialectBody):
    """To how many ids a prompt is cut, and which: vLLM's words.

    Attributes:
        truncate_prompt_tokens: how many are left; -1 means what the model's length leaves room for.
        truncation_side: the side that is cut, begin and end tokens like others. Without it the
            left one is cut and those tokens stay.
    """

    truncate_prompt_tokens: Annotated[int, Field(ge=-1, strict=True)] | None = None
    truncation_side: Literal["left", "right"] | None = None

    def truncate(self, row: list[Any], most: int | None) -> list[Any]:
        """Cut a prompt's ids, or their places, to at most `most`."""
        if most is None or most >= len(row):
            return row
        return row[:most] if self.truncation_side == "right" else row[len(row) - most :]


class CompletionBody(PromptTruncation):
    """The fields of a completion request that matter for its ids."""

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    prompt: TokenIds | Annotated[list[TokenIds], Field(fail_fast=True)] | schemas.Texts | str
    add_special_tokens: bool = True
    return_token_offsets: bool = False


class RenderChat(ChatBody, PromptTruncation):
    """The fields of a chat completion request that matter for its ids."""

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = None
    return_token_offsets: bool = Field(False)


@router.post("/v1/completions/render")
async def render_completion(request: Request) -> Response:
    """Render the prompts of a completion as ids: a list with an element for each prompt."""
    asked = await read_request(request)
    body = parse_body(CompletionBody, asked)
    entry = await asked.entry(body.model)
    answered = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    most = _most_ids(asked, entry, body, answered)
    prompts: list[Any] = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if prompts and all(isinstance(each, int) for each in prompts):
        prompts = [prompts]
    texts = [each for each in prompts if isinstance(each, str)]
    rows, offsets, warning = await _rows(asked, entry, texts, body, most)
    answer, place = [], 0
    for prompt in prompts:
        if isinstance(prompt, str):
            answer.append(_generation(asked, "cmpl", rows[place], offsets[place]))
            place += 1
        else:
            answer.append(_generation(asked, "cmpl", body.truncate(prompt, most), None))
    return make_json_response(answer, warning)


def _most_ids(
    asked: DialectRequest, entry: LoadedVocabulary, truncate: PromptTruncation, num_answered: int
) -> int | None:
    """Most ids of a prompt beside those of its answer; None where it is not cut.

    Raises:
        InvalidRequest: the model's length is too short for what is asked.
    """
    wanted, length = truncate.truncate_prompt_tokens, model_length(asked, entry)
    if wanted is None or (wanted < 0 and length == NO_LIMIT):
        return None
    room = length - num_answered
    if length < NO_LIMIT and (room < 0 or wanted > room):
        message = f"{wanted} of a length of {length} with {num_answered} ids answered"
        raise InvalidRequest(f"{message} leaves no room", "/truncate_prompt_tokens")
    return min(room if wanted < 0 else wanted, NO_LIMIT)


async def _rows(
    asked: DialectRequest,
    entry: LoadedVocabulary,
    texts: list[str],
    body: CompletionBody | RenderChat,
    most: int | None,
) -> tuple[list[list[int]], list[Any], dict[str, str]]:
    """Encode texts; also give places in code points if the request wants them."""
    with_offsets = body.return_token_offsets
    rows, warning, result = await encode_texts(
        asked,
        entry,
        texts,
        add_special_tokens=body.add_special_tokens,
        spans=with_offsets,
        max_length=None if body.truncation_side else most,
    )
    rows = [body.truncate(row, most) for row in rows]
    if not with_offsets:
        return rows, [None] * len(rows), warning
    encoded = result.output
    assert encoded.spans is not None
    begins = encoded.offsets[result.begin : result.end + 1].tolist()
    offsets = [
        convert_spans(encoded.spans[begins[i] : begins[i + 1]], text, "codepoints").tolist()
        for i, text in enumerate(texts)
    ]
    return rows, [body.truncate(places, most) for places in offsets], warning


def _generation(asked: DialectRequest, prefix: str, ids: list[int], offsets: Any) -> dict[str, Any]:
    """Make a request in the form of vLLM's and SGLang's engines."""
    body = asked.body
    return {
        "request_id": f"{prefix}-{uuid.uuid4().hex}",
        "model": body.get("model") or asked.service.settings.default_vocabulary,
        "token_ids": ids,
        "input_ids": ids,
        "token_offsets": offsets,
        "features": None,
        "sampling_params": {},
        "stream": bool(body.get("stream", False)),
        "stream_options": body.get("stream_options"),
        "cache_salt": body.get("cache_salt"),
        "priority": body.get("priority") or 0,
    }


@router.post("/v1/chat/completions/render")
async def render_chat(request: Request) -> Response:
    """Render a chat as ids by the vocabulary's template."""
    asked = await read_request(request)
    body = parse_body(RenderChat, asked)
    entry = await asked.entry(body.model)
    answered = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    most = _most_ids(asked, entry, body, answered or 0)
    text = await chat_text(asked, entry, body)
    rows, offsets, warning = await _rows(asked, entry, [text], body, most)
    return make_json_response(_generation(asked, "chatcmpl", rows[0], offsets[0]), warning)


@router.post("/v1/messages/count_tokens")
async def count_messages(request: Request) -> Response:
    """Count the ids of an Anthropic conversation, with its system prompt and tools."""
    asked = await read_request(request)
    system = asked.body.pop("system", None)
    body = parse_body(ChatBody, asked)
    entry = await asked.entry(body.model)
    body.messages, body.tools = convert_anthropic(body.messages, system), convert_tools(body.tools)
    return make_json_response({"input_tokens": await _count(asked, entry, body)})


async def _count(asked: DialectRequest, entry: LoadedVocabulary, body: ChatBody) -> int:
    text = await chat_text(asked, entry, body)
    (ids,), _, _ = await encode_texts(
        asked, entry, [text], add_special_tokens=body.add_special_tokens, where="/messages"
    )
    return len(ids)


@router.post("/v1/responses/input_tokens")
async def count_responses(request: Request) -> Response:
    """Count the ids of an OpenAI Responses request: a text as it is, messages by the template."""
    asked = await read_request(request)
    given, instructions = asked.body.get("input"), asked.body.get("instructions")
    entry = await asked.entry(parse_body(DialectBody, asked).model)
    if isinstance(given, str) and not instructions:
        (ids,), _, _ = await encode_texts(
            asked, entry, [given], add_special_tokens=True, where="/input"
        )
        return _counted(len(ids))
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise InvalidRequest("must be a text or a list of messages", "/input")
    given = convert_responses(given)
    if instructions:
        given = [{"role": "system", "content": instructions}, *given]
    asked.body["messages"] = given
    body = parse_body(ChatBody, asked)
    body.tools = convert_tools(body.tools)
    return _counted(await _count(asked, entry, body))


def _counted(num_tokens: int) -> Response:
    return make_json_response({"object": "response.input_tokens", "input_tokens": num_tokens})
