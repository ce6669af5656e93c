"""Creates the sampling parameters of a rendered request, as vLLM's engine expects them.

A value comes from the request, from the model's generation_config.json, or from vLLM's defaults, in
this order. A parameter without any of these is omitted, so that the default of the inference engine
applies.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import Field

from service.apis.dialects.common import DialectBody
from service.core.errors import InvalidRequest
from service.operations import schemas

Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]  # The largest integer in JSON for engines.
DEFAULTS: dict[str, float | int] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}
"""vLLM's default values of the parameters that are always present."""
REPEATED = (
    "seed",
    "stop_token_ids",
    "bad_words",
    "ignore_eos",
    "min_tokens",
    "prompt_logprobs",
    "logprob_token_ids",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "logit_bias",
    "allowed_token_ids",
    "thinking_token_budget",
    "repetition_detection",
)
"""Parameters that are copied from the request, if it sets them."""
GREEDY = 1e-5  # Lower ones select the most likely id, as in vLLM.
DELTA, FINAL_ONLY = 1, 2  # vLLM's kinds of output: of a stream, and of one answer.
JSON_OBJECT, JSON_SCHEMA, STRUCTURAL_TAG = "json_object", "json_schema", "structural_tag"


class Sampling(DialectBody):
    """The fields of a generation request that control sampling."""

    n: Int64 | None = Field(None, ge=1)
    repetition_penalty: float | None = Field(None, gt=0)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: Int64 | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: Int64 | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[schemas.Length] | None = None
    bad_words: list[str] | None = None
    ignore_eos: bool | None = None
    min_tokens: Int64 | None = Field(None, ge=0)
    prompt_logprobs: Int64 | None = None
    logprob_token_ids: list[schemas.Length] | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[schemas.Length] | None = None
    thinking_token_budget: Int64 | None = None
    repetition_detection: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    logprobs: Int64 | None = Field(
        None,
        description="Number of log-probabilities for each "
        "token; a chat has true or false, and the number in top_logprobs.",
    )
    top_logprobs: Int64 | None = None
    echo: bool | None = None
    stream: bool | None = None


def make_sampling_params(
    sampling: Sampling, generation: dict[str, Any], max_tokens: int | None, *, is_chat: bool
) -> dict[str, Any]:
    """Return the sampling parameters for a request.

    Args:
        sampling: the parameters of the request.
        generation: the model's generation_config.json; {} if it has none.
        max_tokens: the maximum number of ids of the answer; None: the inference engine decides.
        is_chat: whether the request is a chat, in which `logprobs` is only true or false.

    Raises:
        InvalidRequest: `response_format` is unknown.
    """
    params: dict[str, Any] = {"n": 1 if sampling.n is None else sampling.n}
    for name, default in DEFAULTS.items():
        value = getattr(sampling, name)
        if value is None:
            value = generation.get(name)
        params[name] = default if value is None else value
    if params["temperature"] < GREEDY:
        params |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
    params |= {name: value for name in REPEATED if (value := getattr(sampling, name)) is not None}
    if sampling.stop:
        params["stop"] = [sampling.stop] if isinstance(sampling.stop, str) else sampling.stop
    if max_tokens is not None:
        params["max_tokens"] = max_tokens
    if (logprobs := _find_logprobs(sampling, is_chat)) is not None:
        params["logprobs"] = logprobs
    if sampling.echo and sampling.prompt_logprobs is None and logprobs is not None:
        params["prompt_logprobs"] = logprobs
    if (structured := _find_structure(sampling)) is not None:
        params["structured_outputs"] = structured
    extra = dict(sampling.vllm_xargs or {})
    for name in ("kv_transfer_params", "ec_transfer_params"):
        if value := getattr(sampling, name):
            extra[name] = value
    if extra:
        params["extra_args"] = extra
    params["output_kind"] = DELTA if sampling.stream else FINAL_ONLY
    return params


def _find_logprobs(sampling: Sampling, is_chat: bool) -> int | None:
    """Return how many of the most likely ids to list for each id of the answer; None: none."""
    if sampling.logprob_token_ids:
        return None
    if is_chat:
        return (sampling.top_logprobs or 0) if sampling.logprobs else None
    return sampling.logprobs


def _find_structure(sampling: Sampling) -> dict[str, Any] | None:
    """Return the structure that the answer must have; None: any text is allowed.

    Raises:
        InvalidRequest: `response_format` is unknown.
    """
    structured = sampling.structured_outputs
    wanted = sampling.response_format
    if wanted is None or wanted.get("type") == "text":
        return structured
    match wanted.get("type"):
        case "json_object":
            own: dict[str, Any] = {JSON_OBJECT: True}
        case "json_schema":
            schema = wanted.get(JSON_SCHEMA)
            own = {"json": schema.get("schema") if isinstance(schema, dict) else None}
            if own["json"] is None:
                raise InvalidRequest("must have json_schema with a schema", "/response_format")
        case "structural_tag":
            own = {STRUCTURAL_TAG: orjson.dumps(wanted).decode()}
        case _:
            message = "must be text, json_object, json_schema or structural_tag"
            raise InvalidRequest(message, "/response_format/type")
    return {**(structured or {}), **own}
