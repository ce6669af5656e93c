"""The Arrow stream that the clients send, and the digest of its ids."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from benchmarks.service.bulk_apis.clients import arrow_body, http_head
from benchmarks.service.http import make_texts
from benchmarks.support.corpora import FILES, real_text
from benchmarks.support.texts import Text, cut_rows
from service.apis.bulk.arrow_reader import MEDIA_TYPE

ROW_BYTES, MESSAGE_ROWS = 1 << 16, 64
PROVED_BYTES = 1 << 22  # The text that a stream repeats.
PATH = "/v1/encode/batch"
QUERY = {"vocabulary": "gpt2", "add_special_tokens": "false", "dtype": "uint16"}


@dataclass(frozen=True, slots=True)
class Stream:
    """The Arrow stream that is sent.

    Attributes:
        text: the text that is repeated.
        repeats: how often it is.
        digest: the hash of all ids.
    """

    text: Text
    repeats: int
    digest: str

    @property
    def num_bytes(self) -> int:
        """The bytes of text in the stream."""
        return len(self.text.data) * self.repeats

    def request(self, key: str) -> bytes:
        """Return the bytes of the request."""
        rows = np.split(self.text.data, self.text.offsets[1:-1].tolist()) * self.repeats
        body = arrow_body(rows, MESSAGE_ROWS)
        named = {"content_type": MEDIA_TYPE, "authorization": f"Bearer {key}"}
        return http_head(PATH, QUERY, len(body), **named) + body


def make_stream(folder: Path | None, megabytes: int, tokenizer: Tokenizer) -> Stream:
    """Make a stream of English text, with the digest of tokenizers' ids."""
    size = min(PROVED_BYTES, megabytes << 20)
    if folder is None:
        words = "\n".join(make_texts()).encode()
        data = np.frombuffer((words * (size // len(words) + 1))[:size], np.uint8)
    else:
        data = real_text(folder, FILES["english"], size)
    text = cut_rows("english", data, -(-size // ROW_BYTES), ROW_BYTES)
    rows = np.split(text.data, text.offsets[1:-1].tolist())
    encodings = tokenizer.encode_batch([row.tobytes().decode() for row in rows])
    ids = np.concatenate([np.array(encoding.ids, np.uint16) for encoding in encodings])
    repeats = max(1, (megabytes << 20) // size)
    return Stream(text, repeats, hashlib.sha256(np.tile(ids, repeats).tobytes()).hexdigest())
