"""Answers /tokenize/count with the number of ids that /tokenize would return.

llama-cpp-python calls the route /extras/tokenize/count, and sends the text as `input`.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from service.apis.dialects.chat_prompt import render_chat_text
from service.apis.dialects.common import (
    DialectBody,
    DialectRequest,
    model_length,
    parse_body,
    read_request,
)
from service.apis.dialects.media_estimate import MediaEstimate
from service.apis.dialects.tokenize import (
    CompletionChat,
    ContentBody,
    InputsBody,
    PromptBody,
    find_input,
    find_tokenize_shape,
)
from service.batching.work import GONE, CountWork
from service.core.errors import RowRefused
from service.http.error_responses import Shape, make_dialect_response
from service.http.json_response import make_json_response
from service.operations.operation import check_rows, make_work
from service.registry.entries import LoadedVocabulary
from vocabularies.batch.batch import EncodeOptions

router = APIRouter(tags=["dialects"])
NOTHING = MediaEstimate()


class InputBody(DialectBody):
    """The request body that clients of llama-cpp-python send to count ids."""

    input: str


class CountedTexts(NamedTuple):
    """The texts of a request.

    Attributes:
        entry: the vocabulary.
        texts: one text, or a list of texts.
        options: the options with which they would be encoded.
        where: the place of the texts in the request.
        estimate: the estimate for images and documents of the request.
    """

    entry: LoadedVocabulary
    texts: str | list[str]
    options: EncodeOptions
    where: str
    estimate: MediaEstimate = NOTHING


@router.post("/tokenize/count")
@router.post("/v1/tokenize/count")
@router.post("/extras/tokenize/count")
async def count(http_request: Request) -> Response:
    """Count the ids that /tokenize would return for the same fields."""
    shape: Shape = "openai"
    try:
        request = await read_request(http_request)
        shape = find_tokenize_shape(request.body)
        counted = await _read_texts(request)
        is_one = isinstance(counted.texts, str)
        counts = await _count(request, counted)
        answer = {
            "count": counts[0] + counted.estimate.tokens if is_one else counts,
            "max_model_len": model_length(counted.entry),
            **counted.estimate.describe(),
        }
        return make_json_response(answer)
    except GONE:
        raise
    except Exception as error:
        return make_dialect_response(error, shape)


async def _read_texts(request: DialectRequest) -> CountedTexts:
    """Read the texts of a body; its fields tell from which system's client it comes."""
    name = find_input(request.body)
    if name == "inputs":
        tei = parse_body(InputsBody, request)
        options = EncodeOptions(add_special_tokens=tei.add_special_tokens)
        return CountedTexts(await request.find_entry(tei.model), tei.inputs, options, "/inputs")
    if name == "content":
        llama = parse_body(ContentBody, request)
        options = EncodeOptions(
            add_special_tokens=bool(llama.add_special),
            special=llama.special,
        )
        entry = await request.find_entry(llama.model)
        return CountedTexts(entry, llama.content, options, "/content")
    if name == "input":
        own = parse_body(InputBody, request)
        entry = await request.find_entry(own.model)
        return CountedTexts(entry, own.input, EncodeOptions(), "/input")
    if name == "messages":
        chat = parse_body(CompletionChat, request)
        entry = await request.find_entry(chat.model)
        estimate = MediaEstimate()
        if request.service.settings.estimate_media:
            chat.messages = await asyncio.to_thread(estimate.remove_from, chat.messages)
        text = await render_chat_text(request, entry, chat)
        options = EncodeOptions(add_special_tokens=chat.add_special_tokens)
        return CountedTexts(entry, text, options, "/messages", estimate)
    body = parse_body(PromptBody, request)
    options = EncodeOptions(add_special_tokens=body.add_special_tokens)
    return CountedTexts(await request.find_entry(body.model), body.prompt, options, "/prompt")


async def _count(request: DialectRequest, counted: CountedTexts) -> list[int]:
    """Count the ids of each text.

    Raises:
        ServiceError: there are too many texts, or one is refused.
    """
    service, where = request.service, counted.where
    texts = [counted.texts] if isinstance(counted.texts, str) else counted.texts
    check_rows(service, len(texts), where)
    work = make_work(service, request.call, CountWork, counted.entry, texts, counted.options, where)
    result = await service.batcher.run(work)
    if errors := result.row_errors():
        raise RowRefused(errors[min(errors)], where)
    counts: list[int] = result.output.counts[result.begin : result.end].tolist()
    return counts
