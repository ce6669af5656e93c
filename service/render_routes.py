"""Requests for generation as the ids that a model would be given, and how many they are.

What routers in front of vLLM and SGLang ask of a tokenizer, and the count calls of OpenAI's and
Anthropic's clients.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from service import schemas
from service.chat_messages import functions, of_anthropic, of_responses
from service.chats import ChatBody, chat_text
from service.dialects import Asked, Lax, ask, encode_texts, parse_body
from service.errors import InvalidRequest
from service.positions import convert_spans
from service.registry import Entry
from service.wordings import in_words, json_answer

__all__ = ["router"]

router = APIRouter(tags=["dialects"])

CUTTING = "truncate_prompt_tokens"
# They stand in the answer as they came.
TokenIds = Annotated[list[schemas.Length], Field(fail_fast=True)]


class CompletionBody(Lax):
    """What is read of a completion request."""

    prompt: str | schemas.Texts | TokenIds | Annotated[list[TokenIds], Field(fail_fast=True)]
    add_special_tokens: bool = True
    return_token_offsets: bool = False


class RenderChat(ChatBody):
    """What is read of a chat completion request."""

    return_token_offsets: bool = Field(False)


@router.post("/v1/completions/render")
@in_words("openai")
async def render_completion(request: Request) -> Response:
    """A completion's prompts as ids: a list, one element for each prompt."""
    asked = await ask(request)
    body = parse_body(CompletionBody, asked)
    _refuse_cutting(asked)
    entry = await asked.entry(body.model)
    prompts: list[Any] = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if prompts and all(isinstance(each, int) for each in prompts):
        prompts = [prompts]
    texts = [each for each in prompts if isinstance(each, str)]
    rows, offsets, warning = await _rows(asked, entry, texts, body)
    answer, place = [], 0
    for prompt in prompts:
        if isinstance(prompt, str):
            answer.append(_generation(asked, "cmpl", rows[place], offsets[place]))
            place += 1
        else:
            answer.append(_generation(asked, "cmpl", prompt, None))
    return json_answer(answer, warning)


def _refuse_cutting(asked: Asked) -> None:
    """Refuse to cut prompts: vLLM's versions differ in what is left, begin tokens above all.

    Raises:
        InvalidRequest: another number than -1, which means the model's length.
    """
    if asked.body.get(CUTTING) not in (None, -1):
        message = "prompts are not cut here; ask without it and cut the ids"
        raise InvalidRequest(message, f"/{CUTTING}")


async def _rows(
    asked: Asked, entry: Entry, texts: list[str], body: CompletionBody | RenderChat
) -> tuple[list[list[int]], list[Any], dict[str, str]]:
    """Ids of texts, and their places in code points where they were asked for."""
    with_offsets = body.return_token_offsets
    rows, warning, result = await encode_texts(
        asked, entry, texts, add_special_tokens=body.add_special_tokens, spans=with_offsets
    )
    if not with_offsets:
        return rows, [None] * len(rows), warning
    encoded = result.encoded
    assert encoded is not None
    assert encoded.spans is not None
    begins = encoded.offsets[result.begin : result.end + 1].tolist()
    offsets = [
        convert_spans(encoded.spans[begins[i] : begins[i + 1]], text, "codepoints").tolist()
        for i, text in enumerate(texts)
    ]
    return rows, offsets, warning


def _generation(asked: Asked, prefix: str, ids: list[int], offsets: Any) -> dict[str, Any]:
    """A request as vLLM's and SGLang's engines take it."""
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
@in_words("openai")
async def render_chat(request: Request) -> Response:
    """A chat as ids, by the vocabulary's template."""
    asked = await ask(request)
    body = parse_body(RenderChat, asked)
    _refuse_cutting(asked)
    entry = await asked.entry(body.model)
    text = await chat_text(asked, entry, body)
    rows, offsets, warning = await _rows(asked, entry, [text], body)
    return json_answer(_generation(asked, "chatcmpl", rows[0], offsets[0]), warning)


@router.post("/v1/messages/count_tokens")
@in_words("anthropic")
async def count_messages(request: Request) -> Response:
    """Anthropic's count of a conversation, its system prompt and tools included."""
    asked = await ask(request)
    system = asked.body.pop("system", None)
    body = parse_body(ChatBody, asked)
    entry = await asked.entry(body.model)
    body.messages, body.tools = of_anthropic(body.messages, system), functions(body.tools)
    return json_answer({"input_tokens": await _count(asked, entry, body)})


async def _count(asked: Asked, entry: Entry, body: ChatBody) -> int:
    text = await chat_text(asked, entry, body)
    (ids,), _, _ = await encode_texts(
        asked, entry, [text], add_special_tokens=body.add_special_tokens, where="/messages"
    )
    return len(ids)


@router.post("/v1/responses/input_tokens")
@in_words("openai")
async def count_responses(request: Request) -> Response:
    """OpenAI's count of what would be sent: a text as it is, messages by the template."""
    asked = await ask(request)
    given, instructions = asked.body.get("input"), asked.body.get("instructions")
    entry = await asked.entry(parse_body(Lax, asked).model)
    if isinstance(given, str) and not instructions:
        (ids,), _, _ = await encode_texts(
            asked, entry, [given], add_special_tokens=True, where="/input"
        )
        return _counted(len(ids))
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise InvalidRequest("must be a text or a list of messages", "/input")
    given = of_responses(given)
    if instructions:
        given = [{"role": "system", "content": instructions}, *given]
    asked.body["messages"] = given
    body = parse_body(ChatBody, asked)
    body.tools = functions(body.tools)
    return _counted(await _count(asked, entry, body))


def _counted(num_tokens: int) -> Response:
    return json_answer({"object": "response.input_tokens", "input_tokens": num_tokens})
