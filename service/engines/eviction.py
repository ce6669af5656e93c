"""Chooses the vocabularies that are evicted from host memory: the least recently used ones.

A limit on the number of vocabularies would not bound the memory: the encoder of text may take some
MiB for each thread even for a vocabulary of 300 tokens. Knows no engine, and vocabularies only by
their digests.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from service.engines.base import Holding


def choose_evicted(
    holdings: Mapping[str, Holding], kept: Container[str], max_bytes: int
) -> list[str]:
    """List the digests to evict, least recently used first, so that the rest fits `max_bytes`.

    Args:
        holdings: the loaded vocabularies, by digest.
        kept: digests that are never evicted.
        max_bytes: the limit of all loaded vocabularies; the kept ones alone may exceed it.
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
