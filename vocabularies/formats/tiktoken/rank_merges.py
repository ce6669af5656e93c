"""Derives the merges of a list of ranks (.tiktoken): one pair for each token.

tiktoken merges two neighbours if their joined bytes have a rank, the lowest rank first. A token t
is always the result of the same pair. Proof: before t appears in a text, no merge crosses t's
borders. So the merges inside the borders are those of encoding t's bytes alone, and the last one
joins the same two parts. If encoding t's bytes alone gives several tokens, no merge produces t.
"""

from __future__ import annotations

from collections.abc import Mapping

from vocabularies.errors import VocabularyError

_NEVER = 1 << 62
# Deriving a pair takes time proportional to the square of its token's length; the squares of
# o200k_base sum to 16 million.
_MAX_SQUARES = 1_000_000_000


def derive_merges(ranks: Mapping[bytes, int]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """Derive the pairs in order of rank, and the tokens of several bytes that no merge produces.

    Args:
        ranks: token -> rank, every rank once.

    Raises:
        VocabularyError: the tokens are so long that deriving the merges would take minutes.

    Example: ranks a 0, b 1, c 2, ab 3, abc 4, bca 5 give the pairs (a, b), (ab, c); in "bca" no two
    neighbours can be merged, so no merge produces it.
    """
    if sum(len(token) ** 2 for token in ranks) > _MAX_SQUARES:
        longest = max(map(len, ranks))
        raise VocabularyError.at("tokens", f"too many long tokens; the longest has {longest} bytes")
    pairs: list[tuple[bytes, bytes]] = []
    unreachable: list[bytes] = []
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) == 2:
            pairs.append((token[:1], token[1:]))
        elif len(token) > 2:
            pair = _last_pair(token, ranks)
            if pair is None:
                unreachable.append(token)
            else:
                pairs.append(pair)
    return pairs, unreachable


def _last_pair(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes] | None:
    """Find the two parts that the last merge of a token's bytes joins; None if others remain.

    `borders` are the places between parts, `joined[i]` is the rank of the two parts that meet at
    borders[i + 1]. The loop ends at two parts: joining them would give the token itself.
    """
    rank_of = ranks.get
    size = len(token)
    borders = list(range(size + 1))
    joined = [rank_of(token[i : i + 2], _NEVER) for i in range(size - 1)]
    while len(joined) > 1:
        lowest = min(joined)
        if lowest == _NEVER:
            return None
        i = joined.index(lowest)
        del borders[i + 1], joined[i]
        if i < len(joined):
            joined[i] = rank_of(token[borders[i] : borders[i + 2]], _NEVER)
        if i:
            joined[i - 1] = rank_of(token[borders[i - 1] : borders[i + 1]], _NEVER)
    return token[: borders[1]], token[borders[1] :]
