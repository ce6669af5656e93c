"""The description of a job: everything that the bytes of its shards depend on."""

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
"""Of the manifest, the checkpoints and the bytes that the same job makes; it changes with them."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that the bytes of the shards depend on, except the vocabulary's content.

    Attributes:
        inputs: the files, in order.
        vocabulary: its digest.
        format: the format of the shards; see `writing`.
        prefix: the begin of their names.
        shard_tokens: a shard has no more ids, unless a single document has.
        num_parts: the files are dealt to so many parts, each with shards of its own.
        key: the key, or column, of the text.
        begin_id, end_id: the ids before and behind each document; None: none.
        add_special_tokens: whether the vocabulary's begin and end tokens are put around it.
        special: how special-token text inside a document is encoded; see `EncodeOptions`.
        pack: the length of packed rows; None: a row is a document.
        shuffle: the seed by which the rows of each shard are shuffled; None: they keep their order.
        window, stride: rows are windows of so many ids, and begin so many ids apart; None: a row
            is a document.
        reverse_complement: whether the other strand is encoded.
        uppercase: whether the letters a to z are made upper case first.
        circular: whether sequences wrap; None: as the vocabulary says.
        chat_template: the template that makes texts of chats; "" if there are none.
        chat_tokens: the named tokens that the template reads.
        has_mask: whether rows have a mask of the text of chats that a model learns.
        max_document_bytes: longer documents, or lines of JSONL, chats and lines, are rejected.
        is_digested: whether inputs and shards get digests.
        skips_unreadable: whether files that cannot be read are left out.
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
        """Return a digest of everything, by which a later run knows the same job."""
        described = {
            "version": VERSION,
            "options": self.options(),
            "inputs": [file.describe() for file in self.inputs],
        }
        json = orjson.dumps(described, option=orjson.OPT_SORT_KEYS)
        return f"sha256:{hashlib.sha256(json).hexdigest()}"

    def times_digest(self) -> str:
        """Return a digest of when each local file changed last."""
        json = orjson.dumps([(file.path, file.mtime_ns) for file in self.inputs])
        return f"sha256:{hashlib.sha256(json).hexdigest()}"

    def parts(self) -> list[range]:
        """Deal the files to parts: neighbours together, of about the same bytes."""
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
