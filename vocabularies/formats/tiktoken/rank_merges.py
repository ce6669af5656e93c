"""Derives the merges that a list of ranks (.tiktoken) means: one pair for each token.

tiktoken joins two neighbours wherever their joined bytes have a rank, lowest rank first. Which two
neighbours these are is not free. Take any text in which the token t comes to be: until then no
merge crossed t's borders, so inside them everything went as it goes in t's bytes alone, and the
last step there joined the same two parts. So the run over t's bytes alone ends in t, and its last
step is the only pair that ever makes t; a token whose own run ends in several parts is made by no
merge at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from vocabularies.errors import VocabularyError

_NEVER = 1 << 62
# A run costs the square of its token's length; o200k_base has 16 million in all.
_MAX_SQUARES = 1_000_000_000


def derive_merges(ranks: Mapping[bytes, int]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """Derive the pairs in order of rank, and the longer tokens that no merge reaches.

    Args:
        ranks: token -> rank, every rank once.

    Raises:
        VocabularyError: the tokens are so long that it would take minutes.

    Example: ranks a 0, b 1, c 2, ab 3, abc 4, bca 5 give the pairs (a, b), (ab, c); in "bca" no
    two neighbours have a joined rank, so no merge reaches it.
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
    """Find the two parts that the last step of tiktoken's run over a token's bytes joins.

    `borders` are the places between parts, `joined[i]` is the rank of the two parts that meet at
    borders[i + 1]; the whole token is not asked for, its last step is seen by two parts being left.
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
