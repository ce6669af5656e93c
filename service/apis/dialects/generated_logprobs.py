"""Describes the log probabilities of an inference engine in the format of OpenAI's API.

An inference engine without a tokenizer returns ids: {"token_id": 262, "logprob": -0.1, "rank": 1},
or in older releases {"token": "token_id:262", "logprob": -0.1}. A client expects the text and the
bytes of each token.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from service.apis.dialects.common import DialectRequest, check_described, decode_bytes
from service.operations import schemas
from service.registry.entries import LoadedVocabulary

PLACEHOLDER = "token_id:"


def _read_id(value: Any) -> Any:
    """Return the id of a candidate from either of its two formats."""
    if not isinstance(value, dict) or "token_id" in value:
        return value
    token = value.get("token")
    if isinstance(token, str) and token.removeprefix(PLACEHOLDER).isdecimal():
        return value | {"token_id": int(token.removeprefix(PLACEHOLDER))}
    return value


class LogProb(BaseModel):
    """A candidate token for one position of an answer, with its log probability."""

    token_id: schemas.Length
    logprob: float


class LogProbContent(LogProb):
    """The token at one position of an answer, and the most likely candidates for it."""

    top_logprobs: list[Annotated[LogProb, BeforeValidator(_read_id)]] = []


class LogProbs(BaseModel):
    """The log probabilities of an answer, position by position."""

    content: list[Annotated[LogProbContent, BeforeValidator(_read_id)]] | None = None


async def describe_logprobs(
    request: DialectRequest, entry: LoadedVocabulary, each_one: list[LogProbs | None]
) -> list[list[dict[str, Any]] | None]:
    """Describe the log probabilities of each answer, with the text and the bytes of each token.

    Raises:
        ServiceError: there are too many, or the vocabulary does not contain an id.
    """
    contents = [None if each is None else each.content for each in each_one]
    ids = [
        candidate.token_id
        for content in contents
        for place in content or ()
        for candidate in (place, *place.top_logprobs)
    ]
    if not ids:
        return [None if content is None else [] for content in contents]
    check_described(request.service, [ids], "/logprobs")
    distinct = list(dict.fromkeys(ids))
    tokens = await decode_bytes(
        request,
        entry,
        [[each] for each in distinct],
        skip_special_tokens=False,
        where="/logprobs",
    )
    spelled = dict(zip(distinct, tokens, strict=True))

    def describe(candidate: LogProb) -> dict[str, Any]:
        token = spelled[candidate.token_id]
        return {
            "token": token.decode(errors="replace"),
            "logprob": candidate.logprob,
            "bytes": list(token),
        }

    return [
        None
        if content is None
        else [
            describe(place) | {"top_logprobs": [describe(top) for top in place.top_logprobs]}
            for place in content
        ]
        for content in contents
    ]


def flatten_logprobs(content: list[dict[str, Any]], begin: int) -> dict[str, Any]:
    """Convert log probabilities to the lists of OpenAI's completions.

    Args:
        content: the description of an answer by `describe_logprobs`.
        begin: the position of the first token in the whole text.
    """
    offsets = []
    for place in content:
        offsets.append(begin)
        begin += len(place["token"])
    return {
        "text_offset": offsets,
        "token_logprobs": [place["logprob"] for place in content],
        "tokens": [place["token"] for place in content],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in place["top_logprobs"]} or None
            for place in content
        ],
    }
