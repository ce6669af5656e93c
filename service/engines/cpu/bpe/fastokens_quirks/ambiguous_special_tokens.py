"""Finds special tokens near which fastokens 0.3.5 may match others than the reference.

fastokens matches all special tokens at once. The reference first matches those that are not
`normalized`, with the white space that they strip, and the others in the rest of the text.

Example, ModernBERT: [MASK] strips the blanks before it. So in "a   [MASK]" the reference does not
match the token of three blanks, which is `normalized`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vocabularies.model.types import SpecialToken

MAX_AMBIGUOUS = 64  # Each text is searched for each of them.
MAX_STEPS = 1 << 22  # Some tenths of a second, some hundred megabytes.


def find_ambiguous(tokens: Iterable[SpecialToken]) -> list[str]:
    """Find the special tokens whose occurrence in a text puts its ids in doubt.

    These are tokens that are not `normalized` and may share characters with a normalized one. If a
    token begins or ends in white space, these are also all tokens that strip white space. Random
    tests found these rules.
    """
    matched = [token for token in tokens if token.matched]
    before = [token.content for token in matched if not token.normalized]
    behind = [token.content for token in matched if token.normalized]
    ambiguous = _overlapping(before, behind)
    if any(token.content[0].isspace() or token.content[-1].isspace() for token in matched):
        ambiguous |= {token.content for token in matched if token.lstrip or token.rstrip}
    return sorted(ambiguous)


def _overlapping(contents: Sequence[str], others: Sequence[str]) -> set[str]:
    """List the contents that may overlap with one of the others; all if that takes too long."""
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
