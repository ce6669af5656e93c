"""Converts ids that an inference engine has generated to answers of OpenAI's API, as vLLM does.

    render ─► ids ─► inference engine ─► ids ─► derender ─► text

A whole answer arrives with all its ids. The parts of a stream arrive in separate requests. The
answer to each part contains a state, which the client sends with the next part: the service stores
nothing. Reasoning and tool calls stay in the text, as in a vLLM without parsers for them.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from service.apis.dialects.common import (
    DialectBody,
    DialectRequest,
    decode_rows,
    parse_body,
    read_request,
)
from service.apis.dialects.generated_logprobs import LogProbs, describe_logprobs, flatten_logprobs
from service.core.errors import InvalidRequest
from service.http.json_response import make_json_response
from service.operations import schemas
from service.registry.entries import LoadedVocabulary

router = APIRouter(tags=["dialects"])
CONTEXT_IDS = 8  # Ids before a text that affect how it begins, for example with a space.
MAX_PENDING = 1024  # Maximum ids of a state, as in vLLM; more are decoded, whole character or not.
MAX_CUT = 8  # How many last ids may wait for the next part; characters have up to 4 bytes.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
Ids = Annotated[list[schemas.Length], Field(fail_fast=True)]


class Usage(BaseModel):
    """The numbers of prompt and answer ids that an inference engine counted."""

    prompt_tokens: schemas.Length = 0
    completion_tokens: schemas.Length | None = 0


class GeneratedChoice(BaseModel):
    """One answer, or a part of a streamed answer, as an inference engine returns it."""

    index: schemas.Length = 0
    token_ids: Ids | None = None
    finish_reason: str | None = None
    logprobs: LogProbs | None = None


class Generated(BaseModel):
    """All answers to one prompt, or the next part of each."""

    request_id: str = ""
    choices: list[GeneratedChoice]
    output_mode: str = "tokens"
    usage: Usage | None = None
    prompt_token_ids: Ids | None = None
    prompt_logprobs: Any = None
    kv_transfer_params: dict[str, Any] | None = None


class OriginalRequest(BaseModel):
    """The field of the rendered request that affects how its answer is decoded."""

    skip_special_tokens: bool = True


class StreamState(BaseModel):
    """The position in a stream; the client sends it with the next part.

    Attributes:
        prev_token_ids: the last ids whose text was sent, then the ids of an incomplete character.
        read_offset: the number of ids in `prev_token_ids` whose text was sent.
        role_sent: whether a part has contained the role of the message.
        logprob_text_offset: the number of characters sent, for positions in logprobs.
    """

    prev_token_ids: Annotated[list[schemas.Length], Field(max_length=MAX_PENDING)] = []
    read_offset: schemas.Length = 0
    role_sent: bool = False
    logprob_text_offset: schemas.Length = 0


class DerenderBody(DialectBody):
    """The fields that the request bodies of both derender routes share."""

    stream: bool = False
    generate_chunk: Generated | None = None
    stream_state: StreamState | None = None


class ChatAnswer(DerenderBody):
    """The request body of `derender_chat`: the generated ids of an answer to a chat.

    If the answer is streamed, the body contains one part of it.
    """

    generate_response: Generated | None = None
    prompt_tokens: schemas.Length | None = None
    prompt_token_ids: Ids | None = None
    chat_request: OriginalRequest | None = None


def _make_list(value: Any) -> Any:
    """Convert a single value, as parts of a stream contain, to a list."""
    return [value] if isinstance(value, int) else value


class CompletionAnswer(DerenderBody):
    """The request body of `derender_completion`: the generated ids of the answers to its prompts.

    If an answer is streamed, the body contains one part of it.
    """

    generate_responses: list[Generated] | None = None
    prompt_tokens: Annotated[list[schemas.Length], BeforeValidator(_make_list)] | None = None
    prompt_token_ids: list[Any] | None = None
    completion_request: OriginalRequest | None = None


class DecodedChoice(NamedTuple):
    """A choice and its decoded text."""

    choice: GeneratedChoice
    text: str
    logprobs: list[dict[str, Any]] | None


@router.post("/v1/chat/completions/derender")
async def derender_chat(http_request: Request) -> Response:
    """Convert generated ids to the answer to a chat, or to the next part of its stream."""
    request = await read_request(http_request)
    body = parse_body(ChatAnswer, request)
    entry = await request.find_entry(body.model)
    skips = body.chat_request is None or body.chat_request.skip_special_tokens
    if body.stream:
        part = await _decode_part(request, entry, body, body.prompt_token_ids, skips)
        delta = _chat_delta(part)
        return _make_part_response(
            request, part, "chat.completion.chunk", delta, body.prompt_tokens
        )
    generated = _require(body.generate_response, "/generate_response")
    prompts = [body.prompt_token_ids or generated.prompt_token_ids]
    decoded = await _decode_answers(request, entry, [generated], prompts, skips)
    answer = _answer(request, generated.request_id, "chat.completion")
    answer["choices"] = [
        {
            "index": each.choice.index,
            "message": {
                "role": "assistant",
                "content": each.text,
                "refusal": None,
                "reasoning": None,
                "tool_calls": [],
            },
            "logprobs": None if each.logprobs is None else {"content": each.logprobs},
            "finish_reason": _finish_reason(each.choice),
            "stop_reason": None,
            "token_ids": None,
        }
        for each in decoded
    ]
    answer["usage"] = _count_usage(body.prompt_tokens or 0, decoded)
    answer["prompt_logprobs"] = generated.prompt_logprobs
    answer["kv_transfer_params"] = generated.kv_transfer_params
    return make_json_response(answer)


@router.post("/v1/completions/derender")
async def derender_completion(http_request: Request) -> Response:
    """Convert generated ids to the answer to a completion, or to the next part of its stream."""
    request = await read_request(http_request)
    body = parse_body(CompletionAnswer, request)
    entry = await request.find_entry(body.model)
    skips = body.completion_request is None or body.completion_request.skip_special_tokens
    if body.stream:
        part = await _decode_part(request, entry, body, _check_ids(body.prompt_token_ids), skips)
        num_prompt = sum(body.prompt_tokens) if body.prompt_tokens else None
        return _make_part_response(
            request, part, "text_completion", _completion_delta(part), num_prompt
        )
    responses = _require(body.generate_responses, "/generate_responses")
    if not responses:
        raise InvalidRequest("must not be empty", "/generate_responses")
    counts = _of_each(body.prompt_tokens, len(responses), "/prompt_tokens") or [0] * len(responses)
    given = _of_each(body.prompt_token_ids, len(responses), "/prompt_token_ids")
    prompts = [
        (_check_ids(given[i]) if given else None) or each.prompt_token_ids
        for i, each in enumerate(responses)
    ]
    decoded = await _decode_answers(request, entry, responses, prompts, skips)
    answer = _answer(request, responses[0].request_id, "text_completion")
    answer["choices"] = [
        {
            "index": number,
            "text": each.text,
            "logprobs": None if each.logprobs is None else flatten_logprobs(each.logprobs, 0),
            "finish_reason": _finish_reason(each.choice),
            "stop_reason": None,
            "token_ids": None,
            "prompt_token_ids": None,
            "prompt_logprobs": None,
        }
        for number, each in enumerate(decoded)
    ]
    answer["usage"] = _count_usage(sum(counts), decoded)
    parameters = responses[0].kv_transfer_params
    is_common = all(each.kv_transfer_params == parameters for each in responses)
    answer["kv_transfer_params"] = parameters if is_common else None
    return make_json_response(answer)


def _require(value: Any, where: str) -> Any:
    if value is None:
        raise InvalidRequest("is required", where)
    return value


def _of_each(values: Any, number: int, where: str) -> list[Any] | None:
    """Check that a list contains one value for each response."""
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != number:
        raise InvalidRequest(f"must have a value for each of {number} responses", where)
    return values


def _check_ids(ids: Any) -> list[int] | None:
    """Check the ids of a prompt, and return the last ones, which only a text's first part needs."""
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
        raise InvalidRequest("must be a list of ids", "/prompt_token_ids")
    return ids[-CONTEXT_IDS:]


def _answer(request: DialectRequest, request_id: str, kind: str) -> dict[str, Any]:
    """Create the common fields of an answer."""
    return {
        "id": request_id,
        "object": kind,
        "created": int(time.time()),
        "model": request.body.get("model") or request.service.settings.default_vocabulary,
        "system_fingerprint": None,
    }


def _finish_reason(choice: GeneratedChoice) -> str | None:
    """Return why a whole answer ended; vLLM omits the field for its default, "stop"."""
    return choice.finish_reason if "finish_reason" in choice.model_fields_set else "stop"


def _count_usage(num_prompt: int, decoded: list[DecodedChoice]) -> dict[str, Any]:
    num_answered = sum(len(each.choice.token_ids or []) for each in decoded)
    return _usage(num_prompt, num_answered)


def _usage(num_prompt: int, num_answered: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt,
        "total_tokens": num_prompt + num_answered,
        "completion_tokens": num_answered,
        "prompt_tokens_details": None,
    }


async def _decode_answers(
    request: DialectRequest,
    entry: LoadedVocabulary,
    responses: list[Generated],
    prompts: list[list[int] | None],
    skips_special: bool,
) -> list[DecodedChoice]:
    """Decode whole answers, each with the last ids of its prompt as context.

    Raises:
        InvalidRequest: an answer contains no ids, or text instead of ids.
    """
    is_list = "generate_responses" in request.body
    rows: list[list[int]] = []
    choices: list[GeneratedChoice] = []
    for number, (response, prompt) in enumerate(zip(responses, prompts, strict=True)):
        place = f"/generate_responses/{number}" if is_list else "/generate_response"
        _check_tokens(response, place)
        context = _context(entry, prompt or [], skips_special)
        for position, choice in enumerate(response.choices):
            if not choice.token_ids:
                message = f"choice {choice.index} has no token_ids"
                raise InvalidRequest(message, f"{place}/choices/{position}")
            rows += [context, context + choice.token_ids]
            choices.append(choice)
    texts = await decode_rows(
        request,
        entry,
        rows,
        skip_special_tokens=skips_special,
        where="/generate_responses" if is_list else "/generate_response",
    )
    logprobs = await describe_logprobs(request, entry, [each.logprobs for each in choices])
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return [
        DecodedChoice(choice, _behind(whole, context), described)
        for choice, (context, whole), described in zip(choices, pairs, logprobs, strict=True)
    ]


def _check_tokens(response: Generated, where: str) -> None:
    if response.output_mode != "tokens":
        raise InvalidRequest("has been decoded already", f"{where}/output_mode")


def _context(entry: LoadedVocabulary, ids: list[int], skips_special: bool) -> list[int]:
    """Return the last ids before a text; ids that the vocabulary does not contain are omitted."""
    size, special = len(entry.vocabulary), entry.vocabulary.special_ids
    context = [each for each in ids[-4 * CONTEXT_IDS :] if each < size]
    if skips_special:
        context = [each for each in context if each not in special]
    return context[-CONTEXT_IDS:]


def _behind(whole: str, context: str) -> str:
    """Return the part of a text that follows the text of its context."""
    return whole[len(context) :]


class DecodedPart(NamedTuple):
    """A part of a streamed answer, and the states of the stream before and after it.

    Attributes:
        generated: the part as the inference engine generated it.
        choice: the only choice of the part, with its text; None if the part contains only usage.
        state: the state of the stream after the part.
        before: the state of the stream before the part.
    """

    generated: Generated
    choice: DecodedChoice | None
    state: StreamState
    before: StreamState


async def _decode_part(
    request: DialectRequest,
    entry: LoadedVocabulary,
    body: DerenderBody,
    prompt: list[int] | None,
    skips_special: bool,
) -> DecodedPart:
    """Decode the next part of a stream; the ids of an incomplete character wait for the next part.

    Raises:
        InvalidRequest: the part contains several choices, or the state does not belong to it.
    """
    generated: Generated = _require(body.generate_chunk, "/generate_chunk")
    _check_tokens(generated, "/generate_chunk")
    if len(generated.choices) > 1:
        raise InvalidRequest("has more than one choice", "/generate_chunk/choices")
    state = body.stream_state
    if state is None:
        context = _context(entry, prompt or generated.prompt_token_ids or [], skips_special)
        state = StreamState(prev_token_ids=context, read_offset=len(context))
    elif max(state.prev_token_ids, default=0) >= len(entry.vocabulary):
        # Of another vocabulary, for example the one that this has replaced.
        raise InvalidRequest("contains an id that the vocabulary does not have", "/stream_state")
    if state.read_offset > len(state.prev_token_ids):
        raise InvalidRequest(
            "read_offset is greater than the length of prev_token_ids", "/stream_state"
        )
    if not generated.choices:
        return DecodedPart(generated, None, state, state)
    choice = generated.choices[0]
    context = state.prev_token_ids[: state.read_offset]
    ids = state.prev_token_ids[state.read_offset :] + (choice.token_ids or [])
    is_last = choice.finish_reason is not None or len(context) + len(ids) > MAX_PENDING
    # Write the longest prefix that ends with a whole character; in the last part, everything.
    ends = [len(ids)] if is_last else range(len(ids), max(-1, len(ids) - MAX_CUT), -1)
    rows = [context, *(context + ids[:end] for end in ends)]
    before, *texts = await decode_rows(
        request, entry, rows, skip_special_tokens=skips_special, where="/generate_chunk"
    )
    text, num_written = "", 0
    for end, whole in zip(ends, texts, strict=True):
        if is_last or not whole.endswith(REPLACEMENT):
            text, num_written = _behind(whole, before), end
            break
    written = _context(entry, context + ids[:num_written], skips_special)
    following = StreamState(
        prev_token_ids=written + ids[num_written:],
        read_offset=len(written),
        role_sent=True,
        logprob_text_offset=state.logprob_text_offset + len(text),
    )
    (logprobs,) = await describe_logprobs(request, entry, [choice.logprobs])
    return DecodedPart(generated, DecodedChoice(choice, text, logprobs), following, state)


def _chat_delta(part: DecodedPart) -> dict[str, Any]:
    """Return the new text and log probabilities in a part of a chat's answer."""
    if part.choice is None:
        return {}
    delta: dict[str, Any] = {} if part.before.role_sent else {"role": "assistant"}
    if part.choice.text:
        delta["content"] = part.choice.text
    logprobs = part.choice.logprobs
    return {"delta": delta, "logprobs": None if logprobs is None else {"content": logprobs}}


def _completion_delta(part: DecodedPart) -> dict[str, Any]:
    """Return the new text and log probabilities in a part of a completion's answer."""
    if part.choice is None:
        return {}
    logprobs = part.choice.logprobs
    begin = part.before.logprob_text_offset
    return {
        "text": part.choice.text,
        "logprobs": None if logprobs is None else flatten_logprobs(logprobs, begin),
    }


def _make_part_response(
    request: DialectRequest,
    part: DecodedPart,
    kind: str,
    delta: dict[str, Any],
    num_prompt: int | None,
) -> Response:
    """Return the answer to a part: its content, and the state for the client's next request."""
    generated = part.generated
    chunk = _answer(request, generated.request_id, kind)
    chunk["choices"] = []
    if part.choice is not None:
        choice = part.choice.choice
        chunk["choices"].append(
            {
                "index": choice.index,
                **delta,
                "finish_reason": choice.finish_reason,
                "stop_reason": None,
                "token_ids": None,
            }
        )
    chunk["usage"] = None
    if (usage := generated.usage) is not None:
        num_prompt = usage.prompt_tokens if num_prompt is None else num_prompt
        chunk["usage"] = _usage(num_prompt, usage.completion_tokens or 0)
    return make_json_response({"chunk": chunk, "stream_state": part.state.model_dump()})
