"""Describes models to the Open Inference Protocol: metadata, configuration, state."""

from __future__ import annotations

from typing import Any

from service.apis.oip.statistics import DECODE_SUFFIX, VERSION
from service.core.errors import UnknownVocabulary
from service.core.version import package_version
from service.operations.context import Service
from service.registry.entries import RegisteredVocabulary

EXTENSIONS = [
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "statistics",
    "system_shared_memory",
    "cuda_shared_memory",
]
ENCODE: dict[str, list[Any]] = {
    "inputs": [("text", "BYTES", [-1], False), ("offsets", "INT64", [-1], True)],
    "outputs": [
        ("input_ids", "INT32", [-1]),
        ("offsets", "INT64", [-1]),
        ("attention_mask", "INT8", [-1, -1]),
        ("num_tokens", "INT64", [-1]),
        ("errors", "BYTES", [-1]),
    ],
}
DECODE: dict[str, list[Any]] = {
    "inputs": [("input_ids", "INT32", [-1], False), ("offsets", "INT64", [-1], True)],
    "outputs": [("text", "BYTES", [-1]), ("errors", "BYTES", [-1])],
}


def server() -> dict[str, Any]:
    """Describe the server."""
    return {"name": "warptok", "version": package_version(), "extensions": EXTENSIONS}


def check_version(service: Service, model: str, version: str = "") -> RegisteredVocabulary:
    """Find the vocabulary of a model, and check the version.

    Raises:
        UnknownVocabulary: there is no such model, or not in this version.
    """
    known = service.registry.find(model.removesuffix(DECODE_SUFFIX))
    if version not in ("", VERSION):
        raise UnknownVocabulary(f"{model} has the version {VERSION} only, not {version}", "version")
    return known


def _tensors(model: str) -> dict[str, list[Any]]:
    return DECODE if model.endswith(DECODE_SUFFIX) else ENCODE


def metadata(model: str) -> dict[str, Any]:
    """Describe the names, datatypes and shapes of a model's inputs and outputs."""
    sides = {
        side: [{"name": t[0], "datatype": t[1], "shape": t[2]} for t in tensors]
        for side, tensors in _tensors(model).items()
    }
    return {"name": model, "versions": [VERSION], "platform": "warptok", **sides}


def config(model: str) -> dict[str, Any]:
    """Describe a model as Triton's model configuration does."""
    tensors = _tensors(model)
    types = {"BYTES": "TYPE_STRING"}
    return {
        "name": model,
        "platform": "warptok",
        "backend": "warptok",
        "max_batch_size": 0,
        "input": [
            {
                "name": name,
                "data_type": types.get(datatype, f"TYPE_{datatype}"),
                "dims": shape,
                "optional": optional,
            }
            for name, datatype, shape, optional in tensors["inputs"]
        ],
        "output": [
            {"name": name, "data_type": types.get(datatype, f"TYPE_{datatype}"), "dims": shape}
            for name, datatype, shape in tensors["outputs"]
        ],
    }


def index(service: Service, *, ready_only: bool = False) -> list[dict[str, str]]:
    """List all models with their state, as Triton's repository index does."""
    models = []
    for known in service.registry.known.values():
        is_ready = known.name in service.registry.entries
        if ready_only and not is_ready:
            continue
        reason = service.registry.failures.get(known.name, "")
        state = "READY" if is_ready else "UNAVAILABLE"
        for name in (known.name, known.name + DECODE_SUFFIX):
            models.append({"name": name, "version": VERSION, "state": state, "reason": reason})
    return models
