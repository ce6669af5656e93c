"""Lists the scope that each HTTP path and each gRPC method needs.

A path that is missing from the list needs a key, so that a forgotten path is not public.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from service.core.call import Scope

HEALTH = frozenset({"/livez", "/readyz", "/health", "/ping", "/v2/health/live", "/v2/health/ready"})
"""Paths of health checks."""
PROBES = HEALTH | {"/metrics"}
"""Paths that are answered even if there are too many connections."""
OPEN = PROBES | {"/", "/version", "/docs", "/redoc", "/openapi.json"}
OPEN_PREFIX = "/static-offline-docs/"  # Scripts of the documentation page.
MANAGE = re.compile(
    r"/v1/(vocabularies|aliases)/.*|/v2/repository/models/.*|/v2/\w+sharedmemory/.*", re.DOTALL
)
DECODE = re.compile(
    r"(/v1)?/detokenize|/decode|/v1/decode(/batch)?|/v1/(chat/)?completions/derender"
    r"|/v2/models/.*\.decode(/versions/[^/]*)?/infer",
    re.DOTALL,
)
TRAIN = re.compile(r"/v1/training-jobs(/.*)?", re.DOTALL)

OPEN_METHODS = re.compile(r"/grpc\.(health|reflection)\..*|.*/Server(Live|Ready)", re.DOTALL)
MANAGE_METHODS = re.compile(
    r".*/(Put\w+|Delete\w+|RepositoryModel\w+|\w+SharedMemory\w+)", re.DOTALL
)
ANY_METHODS = re.compile(r".*/(List\w+|Get\w+|Server\w+|RepositoryIndex|Model\w+)", re.DOTALL)
DECODE_METHODS = re.compile(r".*/Decode(Batch)?", re.DOTALL)


def find_path_scope(method: str, path: str) -> Scope | None:
    """Return the scope that an HTTP request needs; None if it needs none."""
    if path in OPEN or path.startswith(OPEN_PREFIX):
        return None
    if TRAIN.fullmatch(path):
        return "train"
    is_reading = method in ("GET", "HEAD", "OPTIONS")
    if MANAGE.fullmatch(path) and not (is_reading and path.startswith("/v1/")):
        return "manage"
    if is_reading or path == "/v2/repository/index":
        return "any"
    return "decode" if DECODE.fullmatch(path) else "encode"


def find_method_scope(path: str) -> Scope | None:
    """Return the scope that a gRPC call needs; None if it needs none.

    The inference calls check further scopes themselves.
    """
    if OPEN_METHODS.fullmatch(path):
        return None
    if MANAGE_METHODS.fullmatch(path):
        return "manage"
    if ANY_METHODS.fullmatch(path):
        return "any"
    return "decode" if DECODE_METHODS.fullmatch(path) else "encode"


def find_key(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the API key in either header of a request; header names are in lower case."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
        if name == b"x-api-key":
            return value.strip().decode("latin-1")
    return None
