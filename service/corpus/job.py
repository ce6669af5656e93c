"""Defines the description of a job: everything on which the bytes of its shards depend."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson

from service.corpus.inputs import Input

MAX_DOCUMENT_BYTES = 256 << 20
SHARD_TOKENS = 1_000_000_000
VERSION = 2
"""The version of the manifest, the checkpoints and the shards; any change increases it."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything on which the bytes of the shards depend, except the vocabulary's content.

    Attributes:
        inputs: the input files, in order.
        vocabulary: the digest of the vocabulary.
        format: the format of the shards; see `writing`.
        prefix: the common prefix of the shards' names.
        shard_tokens: the most ids of a shard, unless a single document has more.
        num_parts: the number of parts among which the files are divided; each part writes its own
            shards.
        key: the JSON key, or the column, that contains the text.
        begin_id, end_id: the ids before and after each document; None: no id.
        add_special_tokens: whether the vocabulary's begin and end tokens are put around each
            document.
        special: how special-token text inside a document is encoded; see `EncodeOptions`.
        pack: the length of packed rows, in ids; None: each document is a row.
        shuffle: the seed by which the rows of each shard are shuffled; None: they keep their order.
        window, stride: the length of windows, which become the rows, and the distance of their
            begins, in ids; None: each document is a row.
        reverse_complement: whether the reverse complement is encoded.
        uppercase: whether the letters a to z are converted to upper case first.
        circular: whether sequences are circular; None: the vocabulary's setting.
        chat_template: the template that renders chats to texts; "" if the inputs are not chats.
        chat_tokens: the named tokens that the template reads.
        has_mask: whether rows have a mask of the parts of chats that a model learns.
        max_document_bytes: the largest size of a document, or of a line of a line-based format;
            longer ones are rejected.
        is_digested: whether the digests of inputs and shards are computed.
        skips_unreadable: whether unreadable files are skipped.
    """

    inputs: tuple[Input, ...]
    vocabulary: str
    format: str = "megatron"
    prefix: str = "shard"
    shard_tokens: int = SHARD_TOKENS
    num_parts: int = 1
    key: str = "text"
    begin_id: int | None = None
    end_id: int | None = None
    add_special_tokens: bool = False
    special: str = "match"
    pack: int | None = None
    shuffle: int | None = None
    window: int | None = None
    stride: int | None = None
    reverse_complement: bool = False
    uppercase: bool = False
    circular: bool | None = None
    chat_template: str = ""
    chat_tokens: dict[str, str] = field(default_factory=dict)
    has_mask: bool = False
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    is_digested: bool = True
    skips_unreadable: bool = False

    def options(self) -> dict[str, Any]:
        """Return the options without the files."""
        names = [each.name for each in dataclasses.fields(self) if each.name != "inputs"]
        return {name: getattr(self, name) for name in names}

    def fingerprint(self) -> str:
        """Return a digest of the whole description, by which later runs recognize the job."""
        described = {
            "version": VERSION,
            "options": self.options(),
            "inputs": [file.describe() for file in self.inputs],
        }
        json = orjson.dumps(described, option=orjson.OPT_SORT_KEYS)
        return f"sha256:{hashlib.sha256(json).hexdigest()}"

    def times_digest(self) -> str:
        """Return a digest of the modification times of all local files."""
        json = orjson.dumps([(file.name, file.mtime_ns) for file in self.inputs])
        return f"sha256:{hashlib.sha256(json).hexdigest()}"

    def parts(self) -> list[range]:
        """Divide the files into parts of consecutive files with about the same number of bytes."""
        num_parts = min(self.num_parts, len(self.inputs))
        total = sum(file.size for file in self.inputs)
        parts: list[range] = []
        begin = done = 0
        for number, file in enumerate(self.inputs):
            done += file.size
            num_left = len(self.inputs) - number - 1
            wanted = num_parts - len(parts) - 1
            is_full = done * num_parts >= total * (len(parts) + 1)
            if wanted and (is_full or num_left == wanted):
                parts.append(range(begin, number + 1))
                begin = number + 1
        return [*parts, range(begin, len(self.inputs))]
