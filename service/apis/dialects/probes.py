"""Answers requests for health, version and models, with which clients detect a server."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Response

from service.apis.dialects.common import MODEL, NO_LIMIT, find_model_length
from service.core.version import package_version
from service.http.dependencies import ServiceDep
from service.http.json_response import make_json_response
from service.http.names_in_paths import MODEL_PATH
from service.operations.context import Service
from service.operations.readiness import readiness
from service.registry.tokenizer_config import GENERATION
from service.security.addresses import split_names

router = APIRouter(tags=["dialects"])
# Keys of the configuration that are omitted.
FILE_KEYS = ("vocab_file", "merges_file", GENERATION)
NOT_READY: dict[int | str, dict[str, Any]] = {503: {"description": "Not ready."}}
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@router.head("/health", include_in_schema=False)
@router.head("/ping", include_in_schema=False)
@router.get("/health", response_class=Response, responses=NOT_READY)
@router.get("/ping", response_class=Response, responses=NOT_READY)
@router.post("/ping", response_class=Response, responses=NOT_READY)
async def health(service: ServiceDep) -> Response:
    """Answer without a body: 200 if the service is ready, 503 if not."""
    return Response(status_code=503 if readiness(service) else 200)


@router.get("/version")
async def version() -> dict[str, str]:
    """Return the version of the service."""
    return {"version": package_version()}


@router.get("/v1/models")
async def list_models(service: ServiceDep) -> dict[str, Any]:
    """List the vocabularies as OpenAI lists models; list a model's folder under all its names."""
    names = split_names(service.settings.model_names) or list(service.registry.known)
    return {"object": "list", "data": [_model(service, name) for name in names]}


@router.get(f"/v1/models/{MODEL_PATH}")
async def get_model(service: ServiceDep, model: str) -> Response:
    """Describe one vocabulary as OpenAI describes a model."""
    name = service.registry.find(model, MODEL).name
    return make_json_response(_model(service, model if _is_served(service, model) else name))


def _is_served(service: Service, name: str) -> bool:
    """Return whether the setting `model_names` contains a name."""
    return name in split_names(service.settings.model_names)


def _model(service: Service, name: str) -> dict[str, Any]:
    own = service.registry.find(name, MODEL).name
    config = service.registry.configs.get(own)
    length = find_model_length(config)
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "warptok",
        "root": own,
        "parent": None,
        "max_model_len": None if length == NO_LIMIT else length,
    }


@router.get("/info")
async def info(service: ServiceDep) -> dict[str, Any]:
    """Describe the service as TEI describes itself."""
    settings = service.settings
    name = settings.default_vocabulary
    entry = service.registry.entries.get(service.registry.aliases.get(name, name))
    return {
        "model_id": name,
        "model_sha": entry.vocabulary.digest if entry is not None else None,
        "model_dtype": "none",
        "model_type": {"tokenizer": {}},
        "max_concurrent_requests": NO_LIMIT,
        "max_input_length": NO_LIMIT,
        "max_batch_tokens": NO_LIMIT,
        "max_batch_requests": None,
        "max_client_batch_size": settings.max_texts,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": package_version(),
        "served_model_name": name,
    }


@router.get("/tokenizer_info")
async def tokenizer_info(service: ServiceDep, model: str | None = None) -> Response:
    """Return tokenizer_config.json as vLLM does, or the vocabulary's own special tokens."""
    name = model or service.settings.default_vocabulary
    entry = await service.registry.get_loaded(name, MODEL)
    roles, token_string = entry.vocabulary.roles, entry.vocabulary.token_string
    answer: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": None}
    for role in ROLES:
        answer[f"{role}_token"] = token_string(roles[role]) if role in roles else None
    config = entry.config
    if config is not None:
        answer |= {key: value for key, value in config.values.items() if key not in FILE_KEYS}
    # These files contain 10^30 for no limit, which is too large for orjson.
    return Response(json.dumps(answer), media_type="application/json")
