"""Lists the special tokens that the C++ extension matches, and those that it does not support.

The extension searches all special tokens at once. The reference first matches those that are not
`normalized`, with the white space that they strip, and the others in the rest of the text. Both
find the same tokens, unless tokens of the two kinds may share characters.

Example, ModernBERT: [MASK] strips the blanks before it. So in "a   [MASK]" the reference does not
match the token of three blanks, which is `normalized`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vocabularies.model.types import SpecialToken

MAX_STEPS = 1 << 22  # Some tenths of a second, some hundred megabytes.


class NativeToken(NamedTuple):
    """A special token in the form of native/rows.hpp.

    Attributes:
        leaves_row: whether another encoder encodes the rows that contain it.
    """

    content: bytes
    id: int
    is_special: bool
    strips_left: bool
    strips_right: bool
    leaves_row: bool


def special_tokens(tokens: Iterable[SpecialToken]) -> list[NativeToken]:
    """List the special tokens that are matched in texts; of equal texts, only the matched token."""
    matched = [token for token in tokens if token.matched and token.content]
    ambiguous = find_ambiguous(matched)
    found: dict[str, SpecialToken] = {}
    for token in sorted(matched, key=lambda token: not token.special):
        found.setdefault(token.content, token)
    return [
        NativeToken(
            content.encode(),
            token.id,
            token.special,
            token.lstrip,
            token.rstrip,
            token.single_word or content in ambiguous,
        )
        for content, token in found.items()
    ]


def find_ambiguous(matched: Sequence[SpecialToken]) -> set[str]:
    """Find the special tokens for which one round of matching may differ from two rounds.

    These may share characters with a token of the other kind. If there are both kinds, and a token
    begins or ends in white space, these are also all tokens that strip white space.
    """
    earlier = [token.content for token in matched if not token.normalized]
    later = [token.content for token in matched if token.normalized]
    if not earlier or not later:
        return set()
    ambiguous = _overlapping(earlier, later) | _overlapping(later, earlier)
    if any(token.content[0].isspace() or token.content[-1].isspace() for token in matched):
        ambiguous |= {token.content for token in matched if token.lstrip or token.rstrip}
    return ambiguous


def _overlapping(contents: Sequence[str], others: Sequence[str]) -> set[str]:
    """Return the contents that may overlap with another list's; all if that takes too long."""
    steps = len(contents) * len(others) + sum(len(text) ** 2 for text in (*contents, *others))
    if steps > MAX_STEPS:
        return set(contents)
    begins = {other[:size] for other in others for size in range(1, len(other) + 1)}
    ends = {other[place:] for other in others for place in range(len(other))}
    return {content for content in contents if _touches(content, others, begins, ends)}


def _touches(content: str, others: Sequence[str], begins: set[str], ends: set[str]) -> bool:
    places = range(len(content))
    return any(
        content[place:] in begins or content[: place + 1] in ends for place in places
    ) or any(other in content or content in other for other in others)
