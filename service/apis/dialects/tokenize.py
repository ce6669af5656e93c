"""Answers /tokenize and /detokenize of vLLM, SGLang, llama.cpp and TEI, told apart by the body.

{"prompt": ...} or {"messages": ...}   vLLM and SGLang     {"content": ...}   llama.cpp
{"inputs": ...}                        TEI
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Discriminator, Field, Tag

from service.apis.dialects.chat_prompt import ChatBody, chat_text
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
ONE, MANY = "list[int]", "list[list[int]]"  # Tags of the union; errors leave them out.


def _row_tag(value: object) -> str:
    """Tell by the first element whether ids are one row or several."""
    return MANY if isinstance(value, list) and value and isinstance(value[0], list) else ONE


Rows = Annotated[
    Annotated[schemas.Ids, Tag(ONE)] | Annotated[schemas.Rows, Tag(MANY)], Discriminator(_row_tag)
]


class PromptBody(DialectBody):
    """The body of vLLM and SGLang: one text or several."""

    prompt: str | schemas.Texts
    add_special_tokens: bool = True
    return_token_strs: bool = False


class ContentBody(DialectBody):
    """The body of llama.cpp."""

    content: str
    add_special: bool = False
    with_pieces: bool = False


class InputsBody(DialectBody):
    """The body of TEI."""

    inputs: str | schemas.Texts
    add_special_tokens: bool = True


class TokensBody(DialectBody):
    """The body of vLLM, SGLang and llama.cpp for ids to text."""

    tokens: Rows
    skip_special_tokens: bool | None = None


class IdsBody(DialectBody):
    """The body of TEI for ids to text."""

    ids: Rows
    skip_special_tokens: bool = True


class CompletionChat(ChatBody):
    """A chat on vLLM's /tokenize."""

    return_token_strs: bool = Field(False)


def _shape(body: dict[str, Any]) -> Shape:
    if "inputs" in body:
        return "tei"
    return "llama_cpp" if "content" in body else "openai"


@router.post("/tokenize")
@router.post("/v1/tokenize")
async def tokenize(request: Request) -> Response:
    """Encode texts; the fields of the body choose the system whose answer it gets."""
    shape: Shape = "openai"
    try:
        asked = await read_request(request)
        shape = _shape(asked.body)
        if shape == "tei":
            return await _tei(asked)
        if shape == "llama_cpp":
            return await _llama_cpp(asked)
        if "messages" in asked.body:
            return await _chat(asked)
        return await _prompt(asked)
    except GONE:
        raise
    except Exception as error:
        return make_dialect_response(error, shape)


async def _prompt(asked: DialectRequest) -> Response:
    body = parse_body(PromptBody, asked)
    entry = await asked.entry(body.model)
    one = isinstance(body.prompt, str)
    texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    rows, warning, _ = await encode_texts(
        asked, entry, texts, add_special_tokens=body.add_special_tokens
    )
    counts = [len(row) for row in rows]
    strings = [token_strings(entry, row) for row in rows] if body.return_token_strs else None
    answer = {
        "count": counts[0] if one else counts,
        "max_model_len": model_length(asked, entry),
        "tokens": rows[0] if one else rows,
        "token_strs": strings[0] if strings and one else strings,
    }
    return make_json_response(answer, warning)


async def _chat(asked: DialectRequest) -> Response:
    body = parse_body(CompletionChat, asked)
    entry = await asked.entry(body.model)
    text = await chat_text(asked, entry, body)
    (ids,), warning, _ = await encode_texts(
        asked, entry, [text], add_special_tokens=body.add_special_tokens, where="/messages"
    )
    answer = {
        "count": len(ids),
        "max_model_len": model_length(asked, entry),
        "tokens": ids,
        "token_strs": token_strings(entry, ids) if body.return_token_strs else None,
    }
    return make_json_response(answer, warning)


async def _llama_cpp(asked: DialectRequest) -> Response:
    body = parse_body(ContentBody, asked)
    entry = await asked.entry(body.model)
    (ids,), warning, _ = await encode_texts(
        asked, entry, [body.content], add_special_tokens=body.add_special, where="/content"
    )
    tokens: Any = ids
    if body.with_pieces:
        check_described(len(ids), "/with_pieces")
        tokens = [{"id": token_id, "piece": _piece(entry, token_id)} for token_id in ids]
    return make_json_response({"tokens": tokens}, warning)


def _piece(entry: LoadedVocabulary, token_id: int) -> str | list[int]:
    """Write a token as text, or as a list of bytes if it is not UTF-8."""
    token = entry.vocabulary.tokens[token_id] or b""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return list(token)


async def _tei(asked: DialectRequest) -> Response:
    body = parse_body(InputsBody, asked)
    entry = await asked.entry(body.model)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    if not texts:
        raise InvalidRequest("`inputs` cannot be empty", "/inputs")
    rows, warning, result = await encode_texts(
        asked,
        entry,
        texts,
        add_special_tokens=body.add_special_tokens,
        spans=True,
        where="/inputs",
    )
    check_described(sum(map(len, rows)), "/inputs")
    assert result.output.spans is not None
    begins = result.output.offsets[result.begin : result.end + 1].tolist()
    answer = []
    for number, (text, row) in enumerate(zip(texts, rows, strict=True)):
        spans = result.output.spans[begins[number] : begins[number + 1]].tolist()
        answer.append(_tei_tokens(entry, text.encode(), row, spans))
    return make_json_response(answer, warning)


def _tei_tokens(
    entry: LoadedVocabulary, text: bytes, ids: list[int], spans: list[list[int]]
) -> list[dict[str, Any]]:
    """Describe each token by its text and place; a special token has its name and no place."""
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
async def detokenize(request: Request) -> Response:
    """Decode ids to `prompt`, `text` and `content`; special tokens stay."""
    return await _detokenize(request, skips_special=False)


@router.post("/v1/detokenize")
async def sglang_detokenize(request: Request) -> Response:
    """Decode ids as SGLang does: special tokens are left out by default."""
    return await _detokenize(request, skips_special=True)


async def _detokenize(request: Request, *, skips_special: bool) -> Response:
    asked = await read_request(request)
    body = parse_body(TokensBody, asked)
    entry = await asked.entry(body.model)
    skip = skips_special if body.skip_special_tokens is None else body.skip_special_tokens
    texts, one = await _texts(asked, entry, body.tokens, skip, "/tokens")
    value: Any = texts[0] if one else texts
    return make_json_response({"prompt": value, "text": value, "content": value})


@router.post("/decode")
async def tei_decode(request: Request) -> Response:
    """Decode ids as TEI does."""
    asked = await read_request(request)
    body = parse_body(IdsBody, asked)
    entry = await asked.entry(body.model)
    texts, _ = await _texts(asked, entry, body.ids, body.skip_special_tokens, "/ids")
    return make_json_response(texts)


async def _texts(
    asked: DialectRequest, entry: LoadedVocabulary, rows: Rows, skip: bool, where: str
) -> tuple[list[str], bool]:
    """Decode one row of ids or several; also return whether it was one."""
    many = [row for row in rows if isinstance(row, list)]
    one = len(many) < len(rows) or not rows
    id_rows = [[token_id for token_id in rows if isinstance(token_id, int)]] if one else many
    texts = await decode_rows(asked, entry, id_rows, skip_special_tokens=skip, where=where)
    return texts, one
