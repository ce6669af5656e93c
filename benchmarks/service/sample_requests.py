"""Random requests as a tokenization service gets them: chats, documents, reads and genomes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from benchmarks.service.http import WORDS
from benchmarks.support.open_loop import Request, json_request

OCTETS = {"content-type": "text/plain", "accept": "application/octet-stream"}
NUM_DOCUMENTS = 40  # Made once: drawing words would take this client longer than ids the service.
Make = Callable[[random.Random, Mapping[str, str]], Request]


def english(chance: random.Random, size: int) -> str:
    """Make English-like words of `size` characters in total."""
    count = size // 4 + 20
    return " ".join(chance.choices(WORDS, k=count))[:size]


def bases(chance: random.Random, size: int) -> str:
    """Make `size` random bases."""
    return "".join(chance.choices("ACGT", k=size))


_chance = random.Random(0)
_DOCUMENT = english(_chance, 1_200_000)
_GENOME = bases(_chance, 2_000_000)


def _part(text: str, chance: random.Random, size: int) -> str:
    begin = chance.randrange(len(text) - size)
    return text[begin : begin + size]


def small_text(chance: random.Random, headers: Mapping[str, str]) -> Request:
    """Make a request of 1 kB of English."""
    body = {"vocabulary": "gpt2", "text": _part(_DOCUMENT, chance, 1000)}
    return json_request("1 kB", "/v1/encode", body, headers)


def _chat(chance: random.Random, headers: Mapping[str, str]) -> Request:
    size = min(20_000, int(chance.lognormvariate(6.5, 1.0)) + 20)
    body = {"vocabulary": "gpt2", "text": _part(_DOCUMENT, chance, size)}
    return json_request("chat", "/v1/encode", body, headers)


def _rag(chance: random.Random, headers: Mapping[str, str]) -> Request:
    body = {"vocabulary": "cl100k_base", "text": _part(_DOCUMENT, chance, 100_000)}
    return json_request("RAG 100 k", "/v1/encode", body, headers)


def _reads(chance: random.Random, headers: Mapping[str, str]) -> Request:
    reads = [_part(_GENOME, chance, 150) for _ in range(100)]
    body = {"vocabulary": "nt_v2", "texts": reads}
    return json_request("100 DNA reads", "/v1/encode/batch", body, headers)


def _mtdna(chance: random.Random, headers: Mapping[str, str]) -> Request:
    body = {"vocabulary": "mtdna6", "text": _part(_GENOME, chance, 16_569)}
    return json_request("mtDNA", "/v1/encode", body, headers)


def _megabase(chance: random.Random, headers: Mapping[str, str]) -> Request:
    path = "/v1/encode?vocabulary=hyenadna&dtype=uint8"
    text = _part(_GENOME, chance, 1_000_000).encode()
    return Request.post("1 Mb", path, text, {**OCTETS, **headers})


def huge_text(size: int, headers: Mapping[str, str]) -> Request:
    """Make a request of one text of `size` bytes of English, whose answer is the bytes of ids."""
    text = (_DOCUMENT.encode() * (size // len(_DOCUMENT) + 1))[:size]
    kind = f"{size // 1_000_000} MB"
    return Request.post(kind, "/v1/encode?vocabulary=gpt2", text, {**OCTETS, **headers})


KINDS: dict[str, Make] = {
    "chat": _chat,
    "rag": _rag,
    "reads": _reads,
    "mtdna": _mtdna,
    "megabase": _megabase,
}
"""By name; each draws one request."""
