"""Steps that the routes of other systems share: read a body, find its vocabulary, encode, decode.

The routes are those of vLLM, SGLang, llama.cpp, TEI, OpenAI and Anthropic. Each refusal has the
format that the clients of the system expect.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import orjson
from fastapi import Request
from numpy.typing import NDArray
from pydantic import ValidationError

from service.apis.dialects.section_cache import SectionCache
from service.apis.dialects.templates.pool import TemplatePool
from service.batching.work import EncodeWork, Result
from service.core.call import Call, get_call, read_timeout
from service.core.errors import BadJson, InvalidRequest, RowRefused, TooLarge, UnknownVocabulary
from service.core.exact_json import load_json
from service.core.json_bodies import Surrogates, parse_json
from service.core.json_elements import RawList, find_list
from service.core.problem_details import invalid_body
from service.http.dependencies import read_whole_body
from service.operations.context import Service
from service.operations.operation import check_rows, find_entry, make_decode_work, make_work
from service.operations.schemas import IgnoreExtra
from service.registry.entries import LoadedVocabulary
from service.registry.tokenizer_config import TokenizerConfig
from vocabularies.batch.batch import Encoded, EncodeOptions

NO_LIMIT = 2**31 - 1  # The length in ids of a model that has no limit.
Model = TypeVar("Model", bound="DialectBody")
MODEL = "/model"  # The place of a vocabulary's name in the request.
DOUBLED = {"x-warptok-warning": "doubled-special-token"}


class DialectBody(IgnoreExtra):
    """A body whose unknown fields are ignored, as clients send whole generation requests.

    Attributes:
        refused_fields: the fields that would change the ids but are not supported, each with the
            reason. A request that sets one of them is refused.
    """

    refused_fields: ClassVar[dict[str, str]] = {}

    model: str | None = None
    surrogates: Surrogates = "refuse"


@dataclass(slots=True)
class DialectRequest:
    """A request whose body was read.

    Attributes:
        service: the service that received the request.
        templates: the pool of processes that render chat templates.
        sections: the cache of the ids of rendered chats' sections.
        call: the head of the request.
        body: the body of the request, a JSON object.
        messages: the unparsed value of `messages`, which a placeholder replaces in the body; None:
            the body contains it.
    """

    service: Service
    templates: TemplatePool
    sections: SectionCache
    call: Call
    body: dict[str, Any]
    messages: RawList | None = None

    def read_messages(self) -> None:
        """Parse the messages, and store them in the body.

        Raises:
            ServiceError: the body is not a JSON object.
        """
        if self.messages is not None:
            self.body, self.messages = _load_object(self.messages.body), None

    async def find_entry(self, model: str | None) -> LoadedVocabulary:
        """Return the vocabulary named by the field `model`, or the default vocabulary.

        Raises:
            ServiceError: there is no such vocabulary, or it cannot be loaded.
        """
        if model:
            return await find_entry(self.service, self.call, model, MODEL)
        default = self.service.settings.default_vocabulary
        try:
            return await find_entry(self.service, self.call, default, MODEL)
        except UnknownVocabulary as error:
            message = f"the default vocabulary {default} does not exist; name another one"
            raise UnknownVocabulary(message, MODEL) from error


async def read_request(request: Request, *, leaves_messages: bool = False) -> DialectRequest:
    """Read the JSON body of a request, whatever its Content-Type is.

    Args:
        request: the request.
        leaves_messages: do not parse the value of `messages`, if it is a list of objects.

    Raises:
        ServiceError: the body is too large, or not a JSON object.
    """
    state = request.app.state
    service: Service = state.service
    call = get_call(request.scope)
    raw = await read_whole_body(request)
    call.times.read = perf_counter()
    messages = find_list(raw, b"messages") if leaves_messages else None
    body = None if messages is None else _load_rest(messages)
    if body is None:
        body, messages = _load_object(raw), None
    call.receive = request.receive
    read_timeout(call)
    return DialectRequest(service, state.templates, state.sections, call, body, messages)


def _load_rest(messages: RawList) -> dict[str, Any] | None:
    """Parse a body in which a placeholder replaces the messages; None: it is not JSON."""
    try:
        rest: dict[str, Any] = load_json(messages.rest)
    except orjson.JSONDecodeError:
        return None
    return rest


def _load_object(raw: bytes) -> dict[str, Any]:
    body = parse_json(_load, raw)
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object", "body")
    return body


def _load(raw: bytes) -> Any:
    try:
        return load_json(raw)
    except orjson.JSONDecodeError as error:
        raise BadJson(f"the body is not JSON: {error.msg}", f"line {error.lineno}") from error


def parse_body(model: type[Model], request: DialectRequest) -> Model:
    """Validate the body of a request.

    Raises:
        ServiceError: a field is missing or invalid, or would change the ids but is not supported.
    """
    for name, reason in model.refused_fields.items():
        if request.body.get(name):
            raise InvalidRequest(reason, f"/{name}")
    try:
        return model.model_validate(request.body)
    except ValidationError as error:
        if request.messages is None:
            raise invalid_body(error) from error
    request.read_messages()  # They may be invalid as well.
    return parse_body(model, request)


def model_length(entry: LoadedVocabulary) -> int:
    """Return a model's maximum length in ids from its tokenizer_config.json, or NO_LIMIT."""
    return find_model_length(entry.config)


def find_model_length(config: TokenizerConfig | None) -> int:
    """Return the maximum length in ids in a tokenizer configuration, or NO_LIMIT."""
    length = config.values.get("model_max_length") if config is not None else None
    return length if isinstance(length, int) and 0 < length < NO_LIMIT else NO_LIMIT


class EncodedTexts(NamedTuple):
    """The ids of a request's texts.

    Attributes:
        arrays: the ids of each text, in the memory of the batch.
        headers: headers of the answer that warn the client; usually none.
        result: the result of the batch; the rows of the request begin at row `result.begin`.
    """

    arrays: list[NDArray[np.integer[Any]]]
    headers: dict[str, str]
    result: Result[Encoded]

    @property
    def rows(self) -> list[list[int]]:
        """The ids of each text as lists of Python integers; computed at each access."""
        return [array.tolist() for array in self.arrays]


async def encode_texts(
    request: DialectRequest,
    entry: LoadedVocabulary,
    texts: list[str],
    *,
    add_special_tokens: bool,
    special: Literal["match", "plain"] = "match",
    spans: bool = False,
    max_length: int | None = None,
    where: str = "/prompt",
    checks_rows: bool = True,
) -> EncodedTexts:
    """Encode texts.

    A text with more than `max_length` ids loses its first ids, except the begin tokens.
    `checks_rows` is False if the texts are parts of one text of the client, so that their number is
    not limited.

    Raises:
        ServiceError: there are too many texts, or one is refused.
    """
    if checks_rows:
        check_rows(request.service, len(texts), where)
    options = EncodeOptions(
        add_special_tokens=add_special_tokens,
        special=special,
        spans=spans,
        max_length=max_length,
        truncation_side="left",
    )
    work = make_work(request.service, request.call, EncodeWork, entry, texts, options, where)
    result = await request.service.batcher.run(work)
    errors = result.row_errors()
    if errors:
        row = min(errors)
        raise RowRefused(errors[row], where)
    arrays = [result.output.row(row) for row in range(result.begin, result.end)]
    prefix = list(entry.vocabulary.prefix)
    size = len(prefix)
    begins = (array[: 2 * size].tolist() for array in arrays)
    doubled = size and any(begin == 2 * prefix for begin in begins)
    headers = DOUBLED if doubled and add_special_tokens else {}
    return EncodedTexts(arrays, headers, result)


async def decode_rows(
    request: DialectRequest,
    entry: LoadedVocabulary,
    rows: list[list[int]],
    *,
    skip_special_tokens: bool,
    where: str,
) -> list[str]:
    """Decode each row of ids to a text; bytes that are not UTF-8 become U+FFFD.

    Raises:
        ServiceError: there are too many rows, or the vocabulary does not contain an id.
    """
    texts = await decode_bytes(
        request, entry, rows, skip_special_tokens=skip_special_tokens, where=where
    )
    return [text.decode(errors="replace") for text in texts]


async def decode_bytes(
    request: DialectRequest,
    entry: LoadedVocabulary,
    rows: list[list[int]],
    *,
    skip_special_tokens: bool,
    where: str,
) -> list[bytes]:
    """Decode each row of ids to bytes, which need not be UTF-8.

    Raises:
        ServiceError: there are too many rows, or the vocabulary does not contain an id.
    """
    check_rows(request.service, len(rows), where)
    work = make_decode_work(request.service, request.call, entry, rows, skip_special_tokens)
    result = await request.service.batcher.run(work)
    errors = result.row_errors()
    if errors:
        raise RowRefused(errors[min(errors)], where)
    decoded = result.output
    begins = decoded.offsets.tolist()
    return [
        decoded.data[begins[row] : begins[row + 1]].tobytes()
        for row in range(result.begin, result.end)
    ]


def check_described(service: Service, rows: list[list[int]], where: str) -> None:
    """Raise TooLarge if an answer would describe more ids than `max_described_ids`."""
    num_ids, limit = sum(map(len, rows)), service.settings.max_described_ids
    if num_ids > limit:
        raise TooLarge(
            f"the answer would describe {num_ids} ids; max_described_ids is {limit}", where
        )


def token_strings(entry: LoadedVocabulary, ids: list[int]) -> list[str]:
    """Return the tokens of ids as tokenizer.json spells them, byte-level ones in their alphabet.

    The caller limits the number of ids with `check_described`.
    """
    return [entry.vocabulary.file_string(token_id) for token_id in ids]
