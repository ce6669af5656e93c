"""Describes models for the Open Inference Protocol: metadata, configuration and state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from service.apis.oip.statistics import VERSION
from service.core.errors import InvalidRequest, UnknownVocabulary
from service.core.version import package_version
from service.operations.context import Service
from service.registry.entries import DECODE_SUFFIX, RegisteredVocabulary

EXTENSIONS = [
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "statistics",
    "system_shared_memory",
    "cuda_shared_memory",
]


class TensorSpec(NamedTuple):
    """An input or output of a model; -1 in the shape means any size."""

    name: str
    datatype: str
    shape: list[int]
    is_optional: bool = False

    def metadata(self) -> dict[str, Any]:
        """Describe the tensor in the format of the protocol's model metadata."""
        return {"name": self.name, "datatype": self.datatype, "shape": self.shape}

    def config(self) -> dict[str, Any]:
        """Describe the tensor in the format of Triton's model configuration."""
        kind = "STRING" if self.datatype == "BYTES" else self.datatype
        return {"name": self.name, "data_type": f"TYPE_{kind}", "dims": self.shape}


class ModelSpec(NamedTuple):
    """The inputs and outputs of a model, as metadata and configuration describe them."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]


ENCODE = ModelSpec(
    inputs=[
        TensorSpec("text", "BYTES", [-1]),
        TensorSpec("offsets", "INT64", [-1], is_optional=True),
    ],
    outputs=[
        TensorSpec("input_ids", "INT32", [-1]),
        TensorSpec("offsets", "INT64", [-1]),
        TensorSpec("attention_mask", "INT8", [-1, -1]),
        TensorSpec("offset_mapping", "INT64", [-1, 2]),
        TensorSpec("num_tokens", "INT64", [-1]),
        TensorSpec("errors", "BYTES", [-1]),
    ],
)
DECODE = ModelSpec(
    inputs=[
        TensorSpec("input_ids", "INT32", [-1]),
        TensorSpec("offsets", "INT64", [-1], is_optional=True),
    ],
    outputs=[TensorSpec("text", "BYTES", [-1]), TensorSpec("errors", "BYTES", [-1])],
)


def server() -> dict[str, Any]:
    """Describe the server and its extensions."""
    return {"name": "warptok", "version": package_version(), "extensions": EXTENSIONS}


def check_version(
    service: Service, model: str, version: str = "", where: str = "model"
) -> RegisteredVocabulary:
    """Check that a model exists in a version, and return its vocabulary.

    Args:
        service: the service.
        model: the name of the model, with the suffix `.decode` for a model that decodes.
        version: the version; "" if the request names none.
        where: the place of the model's name in the request.

    Raises:
        UnknownVocabulary: there is no such model, or not in this version.
    """
    vocabulary = service.registry.find(model.removesuffix(DECODE_SUFFIX), where)
    if version not in ("", VERSION):
        raise UnknownVocabulary(f"{model} has only version {VERSION}, not {version}", "version")
    return vocabulary


def check_load(parameters: Iterable[str]) -> None:
    """Check that a request to load a model brings neither a configuration nor files.

    Args:
        parameters: the names of the parameters of the request.

    Raises:
        InvalidRequest: there is a parameter.
    """
    for name in parameters:
        message = "is not possible; PUT /v1/vocabularies uploads files"
        raise InvalidRequest(message, f"parameters/{name}")


def own_name(service: Service, model: str) -> str:
    """Return the name under which a model is counted, independent of which alias is used.

    Raises:
        UnknownVocabulary: there is no such model.
    """
    own = check_version(service, model).name
    return own + DECODE_SUFFIX if model.endswith(DECODE_SUFFIX) else own


def _find_spec(model: str) -> ModelSpec:
    return DECODE if model.endswith(DECODE_SUFFIX) else ENCODE


def metadata(model: str) -> dict[str, Any]:
    """Return the names, datatypes and shapes of a model's inputs and outputs."""
    spec = _find_spec(model)
    return {
        "name": model,
        "versions": [VERSION],
        "platform": "warptok",
        "inputs": [tensor.metadata() for tensor in spec.inputs],
        "outputs": [tensor.metadata() for tensor in spec.outputs],
    }


def config(model: str) -> dict[str, Any]:
    """Describe a model in the format of Triton's model configuration."""
    spec = _find_spec(model)
    return {
        "name": model,
        "platform": "warptok",
        "backend": "warptok",
        "max_batch_size": 0,
        "input": [tensor.config() | {"optional": tensor.is_optional} for tensor in spec.inputs],
        "output": [tensor.config() for tensor in spec.outputs],
    }


def index(service: Service, *, ready_only: bool = False) -> list[dict[str, str]]:
    """List all models with their states, in the format of Triton's repository index."""
    models = []
    for vocabulary in service.registry.known:
        is_ready = vocabulary in service.registry.entries
        if ready_only and not is_ready:
            continue
        reason = service.registry.failures.get(vocabulary, "")
        state = "READY" if is_ready else "UNAVAILABLE"
        for name in (vocabulary, vocabulary + DECODE_SUFFIX):
            models.append({"name": name, "version": VERSION, "state": state, "reason": reason})
    return models
