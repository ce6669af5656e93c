"""Messages for the APIs."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from backports import zstd

CANARY = "KANARIE"
"""A string in every text, name and token, which no log line may hold."""
TEXT = f"{CANARY}, it's 1234 \u4e2d\u6587 \U0001f469\u200d\U0001f4bb"
DNA = "GATTACAKANARIENNNNacgtRYKM"
BOUNDARY = b"border"
Body = Literal["json", "bytes", "arrow", "lines", "proto", "multipart", "tensors"]


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a multipart upload."""

    name: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """A request of HTTP, or the messages of a gRPC call.

    Attributes:
        path: with the query string; of gRPC the method.
        headers: names in lower case; Content-Length is counted when it is sent.
        bodies: one of HTTP, one for each message of gRPC.
        body: what the bodies are, for whoever changes them.
        encoding: Content-Encoding that is put around the body when it is sent.
    """

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    bodies: tuple[bytes, ...] = (b"",)
    body: Body = "bytes"
    encoding: str = ""
    parts: tuple[Part, ...] = ()

    @property
    def content(self) -> bytes:
        """The body of a request over HTTP as it is sent."""
        return ENCODERS[self.encoding](multipart(self.parts) if self.parts else self.bodies[0])


ENCODERS = {
    "": lambda data: data,
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "deflate": lambda data: zlib.compress(data, 1),
    "zstd": lambda data: zstd.compress(data, 1),
}


def multipart(parts: Sequence[Part]) -> bytes:
    """Write files as the body of a form."""
    lines = []
    for part in parts:
        disposition = b'Content-Disposition: form-data; name="f"; filename="%b"' % part.name
        lines += [b"--" + BOUNDARY, disposition, b"", part.body]
    return b"\r\n".join([*lines, b"--" + BOUNDARY + b"--", b""])
