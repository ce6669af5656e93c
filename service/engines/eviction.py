"""Chooses the vocabularies to evict from host memory, the least recently used ones first.

A limit on the number of vocabularies would not bound the memory: the text encoder may use some MiB
per thread even for a vocabulary of 300 tokens. This module depends on no engine, and identifies
vocabularies only by digest.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from service.engines.base import Holding


def choose_evicted(
    holdings: Mapping[str, Holding], kept: Container[str], max_bytes: int
) -> list[str]:
    """List the digests to evict, least recently used first, so that the others fit `max_bytes`.

    Args:
        holdings: the loaded vocabularies by digest.
        kept: digests that are never evicted.
        max_bytes: the limit for all loaded vocabularies; those in `kept` alone may exceed it.
    """
    num_bytes = sum(holding.num_bytes for holding in holdings.values())
    evicted: list[str] = []
    for digest, holding in sorted(holdings.items(), key=lambda item: item[1].used):
        if num_bytes <= max_bytes:
            break
        if digest not in kept:
            num_bytes -= holding.num_bytes
            evicted.append(digest)
    return evicted
