"""Answers /tokenize and /detokenize of vLLM, SGLang, llama.cpp and TEI, distinguished by the body.

{"prompt": ...} or {"messages": ...}   vLLM and SGLang
{"content": ...}                       llama.cpp
{"inputs": ...}                        TEI
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import Discriminator, Field, Tag

from service.apis.dialects.chat_prompt import ChatBody, encode_chat, render_chat_utf8
from service.apis.dialects.common import (
    DialectBody,
    DialectRequest,
    check_described,
    decode_rows,
    encode_texts,
    model_length,
    parse_body,
    read_request,
    token_strings,
)
from service.batching.work import GONE
from service.core.errors import InvalidRequest
from service.http.error_responses import Shape, make_dialect_response
from service.http.json_response import make_json_response
from service.operations import schemas
from service.registry.entries import LoadedVocabulary

router = APIRouter(tags=["dialects"])
ONE, MANY = "list[int]", "list[list[int]]"  # Tags of the union, which error messages omit.


def _row_tag(value: object) -> str:
    """Return whether ids are one row or several, by the type of the first element."""
    return MANY if isinstance(value, list) and value and isinstance(value[0], list) else ONE


Rows = Annotated[
    Annotated[schemas.Ids, Tag(ONE)] | Annotated[schemas.Rows, Tag(MANY)], Discriminator(_row_tag)
]


class PromptBody(DialectBody):
    """The body of a /tokenize request of vLLM and SGLang, with one text or several."""

    prompt: str | schemas.Texts
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class ContentBody(DialectBody):
    """The body of a /tokenize request of llama.cpp, where null means that an option is absent."""

    content: str
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None

    @property
    def special(self) -> Literal["match", "plain"]:
        """Return how the text of a special token is encoded."""
        return "plain" if self.parse_special is False else "match"


class InputsBody(DialectBody):
    """The body of a /tokenize request of TEI."""

    refused_fields: ClassVar[dict[str, str]] = {
        "prompt_name": "a vocabulary has no named prompts; put the prompt in front of the text"
    }

    inputs: str | schemas.Texts
    add_special_tokens: bool = True


class TokensBody(DialectBody):
    """The body of a /detokenize request of vLLM, SGLang and llama.cpp."""

    tokens: Rows
    skip_special_tokens: bool | None = None


class IdsBody(DialectBody):
    """The body of a /decode request of TEI."""

    ids: Rows
    skip_special_tokens: bool = True


class CompletionChat(ChatBody):
    """The body of a /tokenize request of vLLM that contains a chat."""

    return_token_strs: bool | None = Field(False)


INPUTS = ("inputs", "content", "messages", "prompt", "input")  # The first one counts.


def find_input(body: dict[str, Any]) -> str:
    """Return the field of a body that contains its texts or messages.

    A field that is null counts as absent if there is another one, as some clients send all fields.
    """
    present = [name for name in INPUTS if name in body]
    given = [name for name in present if body[name] is not None]
    return next(iter(given or present), "prompt")


def find_tokenize_shape(body: dict[str, Any]) -> Shape:
    """Return which system's clients send a body with these fields."""
    name = find_input(body)
    if name == "inputs":
        return "tei"
    return "llama_cpp" if name == "content" else "openai"


@router.post("/tokenize")
@router.post("/v1/tokenize")
async def tokenize(http_request: Request) -> Response:
    """Encode texts; the fields of the body decide in which system's format the answer is."""
    shape: Shape = "openai"
    try:
        request = await read_request(http_request)
        shape = find_tokenize_shape(request.body)
        if shape == "tei":
            return await _tei(request)
        if shape == "llama_cpp":
            return await _llama_cpp(request)
        if find_input(request.body) == "messages":
            return await _chat(request)
        return await _prompt(request)
    except GONE:
        raise
    except Exception as error:
        return make_dialect_response(error, shape)


async def _prompt(request: DialectRequest) -> Response:
    body = parse_body(PromptBody, request)
    entry = await request.find_entry(body.model)
    is_one = isinstance(body.prompt, str)
    texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    encoded = await encode_texts(request, entry, texts, add_special_tokens=body.add_special_tokens)
    rows = encoded.rows
    counts = [len(row) for row in rows]
    if body.return_token_strs:
        check_described(request.service, rows, "/return_token_strs")
    strings = [token_strings(entry, row) for row in rows] if body.return_token_strs else None
    answer = {
        "count": counts[0] if is_one else counts,
        "max_model_len": model_length(entry),
        "tokens": rows[0] if is_one else rows,
        "token_strs": strings[0] if strings and is_one else strings,
    }
    return make_json_response(answer, encoded.headers)


async def _chat(request: DialectRequest) -> Response:
    body = parse_body(CompletionChat, request)
    entry = await request.find_entry(body.model)
    text = await render_chat_utf8(request, entry, body)
    chat = await encode_chat(request, entry, text, add_special_tokens=body.add_special_tokens)
    strings = None
    if body.return_token_strs:
        ids = orjson.loads(chat.json)
        check_described(request.service, [ids], "/return_token_strs")
        strings = token_strings(entry, ids)
    answer = {
        "count": chat.num_ids,
        "max_model_len": model_length(entry),
        "tokens": orjson.Fragment(chat.json),
        "token_strs": strings,
    }
    return make_json_response(answer, chat.headers)


async def _llama_cpp(request: DialectRequest) -> Response:
    body = parse_body(ContentBody, request)
    entry = await request.find_entry(body.model)
    encoded = await encode_texts(
        request,
        entry,
        [body.content],
        add_special_tokens=bool(body.add_special),
        special=body.special,
        where="/content",
    )
    ids = encoded.rows[0]
    tokens: Any = ids
    if body.with_pieces:
        check_described(request.service, encoded.rows, "/with_pieces")
        tokens = [{"id": token_id, "piece": _piece(entry, token_id)} for token_id in ids]
    return make_json_response({"tokens": tokens}, encoded.headers)


def _piece(entry: LoadedVocabulary, token_id: int) -> str | list[int]:
    """Return the text of a token, or a list of its bytes if it is not UTF-8."""
    token = entry.vocabulary.tokens[token_id] or b""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return list(token)


async def _tei(request: DialectRequest) -> Response:
    body = parse_body(InputsBody, request)
    entry = await request.find_entry(body.model)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    if not texts:
        raise InvalidRequest("`inputs` cannot be empty", "/inputs")
    encoded = await encode_texts(
        request,
        entry,
        texts,
        add_special_tokens=body.add_special_tokens,
        spans=True,
        where="/inputs",
    )
    check_described(request.service, encoded.rows, "/inputs")
    result = encoded.result
    assert result.output.spans is not None
    begins = result.output.offsets[result.begin : result.end + 1].tolist()
    answer = []
    for number, (text, row) in enumerate(zip(texts, encoded.rows, strict=True)):
        spans = result.output.spans[begins[number] : begins[number + 1]].tolist()
        answer.append(_tei_tokens(entry, text.encode(), row, spans))
    return make_json_response(answer, encoded.headers)


def _tei_tokens(
    entry: LoadedVocabulary, text: bytes, ids: list[int], spans: list[list[int]]
) -> list[dict[str, Any]]:
    """Describe each token by its text and place; a special token by its name, without a place."""
    special = entry.vocabulary.special_ids
    return [
        {
            "id": token_id,
            "text": entry.vocabulary.token_string(token_id)
            if token_id in special
            else text[begin:end].decode(errors="replace"),
            "special": token_id in special,
            "start": None if token_id in special else begin,
            "stop": None if token_id in special else end,
        }
        for token_id, (begin, end) in zip(ids, spans, strict=True)
    ]


@router.post("/detokenize")
async def detokenize(http_request: Request) -> Response:
    """Decode ids to `prompt`, `text` and `content`; special tokens are included by default."""
    return await _detokenize(http_request, skips_special=False)


@router.post("/v1/detokenize")
async def sglang_detokenize(http_request: Request) -> Response:
    """Decode ids as SGLang does: special tokens are omitted by default."""
    return await _detokenize(http_request, skips_special=True)


async def _detokenize(http_request: Request, *, skips_special: bool) -> Response:
    request = await read_request(http_request)
    body = parse_body(TokensBody, request)
    entry = await request.find_entry(body.model)
    skip = skips_special if body.skip_special_tokens is None else body.skip_special_tokens
    texts = await _texts(request, entry, body.tokens, skip, "/tokens")
    value: Any = texts[0] if _is_one_row(body.tokens) else texts
    return make_json_response({"prompt": value, "text": value, "content": value})


@router.post("/decode")
async def tei_decode(http_request: Request) -> Response:
    """Decode ids as TEI does."""
    request = await read_request(http_request)
    body = parse_body(IdsBody, request)
    entry = await request.find_entry(body.model)
    texts = await _texts(request, entry, body.ids, body.skip_special_tokens, "/ids")
    return make_json_response(texts)


async def _texts(
    request: DialectRequest, entry: LoadedVocabulary, ids: Rows, skip: bool, where: str
) -> list[str]:
    """Decode one row of ids or several; `skip` omits special tokens."""
    rows: Any = [ids] if _is_one_row(ids) else ids
    return await decode_rows(request, entry, rows, skip_special_tokens=skip, where=where)


def _is_one_row(ids: Rows) -> bool:
    """Return whether ids are one row; an empty list is one row."""
    return _row_tag(ids) == ONE
