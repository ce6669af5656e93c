"""Lists the SHA-256 of the upstream file of each stored built-in vocabulary.

The files are not part of the package. `build` finds them in a folder, and SOURCES.md lists their
origins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SUFFIX = ".vocabulary.xz"


@dataclass(frozen=True, slots=True)
class UpstreamFile:
    """A published file and its format."""

    format: str
    sha256: str


UPSTREAM: Mapping[str, UpstreamFile] = MappingProxyType(
    {
        "gpt2": UpstreamFile(
            "tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
        ),
        "cl100k_base": UpstreamFile(
            "tiktoken", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
        ),
        "o200k_base": UpstreamFile(
            "tiktoken", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
        ),
        "dnabert2": UpstreamFile(
            "tokenizer.json", "a642815d61bee153ff7e043a01849137776605e542779674d554331b4e7ab253"
        ),
        "gena_lm_t2t_32k": UpstreamFile(
            "tokenizer.json", "440cec76fcec5288d10f70b64f3f59289fe313dd1b6fc42bcf0fac319297dc3d"
        ),
        "gpn": UpstreamFile(
            "tokenizer.json", "4d9745bec1f323aa95b840eb3d8de4cb49eb161bce9fb0d6c401f8a156be43f7"
        ),
    }
)
