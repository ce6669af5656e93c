"""Which vocabularies leave this machine's memory for others: the ones that were longest unused.

An encoder with a table of its own for each vocabulary takes 45 MiB for one of 300 tokens, so that
the number of vocabularies alone bounds nothing. Knows no engine's ways and no names.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from service.engines.base import Holding


def leaving(holdings: Mapping[str, Holding], kept: Container[str], max_bytes: int) -> list[str]:
    """The digests that have to leave so that the others take `max_bytes` at most.

    Args:
        holdings: what is loaded, by digest.
        kept: digests that stay whatever they take.
        max_bytes: of all that is loaded; what is kept may be more.

    Returns:
        The longest unused first.
    """
    num_bytes = sum(holding.num_bytes for holding in holdings.values())
    gone: list[str] = []
    for digest, holding in sorted(holdings.items(), key=lambda item: item[1].used):
        if num_bytes <= max_bytes:
            break
        if digest not in kept:
            num_bytes -= holding.num_bytes
            gone.append(digest)
    return gone
