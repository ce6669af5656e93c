"""Special tokens around which fastokens 0.3.5 may find others than the reference.

It looks once for all of them. The reference looks first for those that come before the normalizers,
with the white space that they take, and in what is left for the others.

Example, ModernBERT: [MASK] takes the blanks before it, so that in "a   [MASK]" the token of three
blanks, which is looked for behind the normalizers, is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vocabularies.model.types import SpecialToken

MAX_AMBIGUOUS = 64  # Each is looked for in each text.
MAX_STEPS = 1 << 22  # Some tenths of a second, some hundred megabytes.


def find_ambiguous(tokens: Iterable[SpecialToken]) -> list[str]:
    """What a text must hold for its ids to be in doubt; random tests found which that are.

    Tokens before the normalizers that may share characters with one behind them, and, where a token
    begins or ends in white space, those that take white space.
    """
    matched = [token for token in tokens if token.matched]
    before = [token.content for token in matched if not token.normalized]
    behind = [token.content for token in matched if token.normalized]
    ambiguous = _overlapping(before, behind)
    if any(token.content[0].isspace() or token.content[-1].isspace() for token in matched):
        ambiguous |= {token.content for token in matched if token.lstrip or token.rstrip}
    return sorted(ambiguous)


def _overlapping(contents: Sequence[str], others: Sequence[str]) -> set[str]:
    """The contents that hold, or end or begin in, what one of the others does; all if in doubt."""
    steps = len(contents) * len(others) + sum(len(text) ** 2 for text in (*contents, *others))
    if not others or steps > MAX_STEPS:
        return set(contents) if others else set()
    begins = {other[:size] for other in others for size in range(1, len(other) + 1)}
    ends = {other[place:] for other in others for place in range(len(other))}
    return {content for content in contents if _touches(content, others, begins, ends)}


def _touches(content: str, others: Sequence[str], begins: set[str], ends: set[str]) -> bool:
    places = range(len(content))
    return any(
        content[place:] in begins or content[: place + 1] in ends for place in places
    ) or any(other in content or content in other for other in others)
