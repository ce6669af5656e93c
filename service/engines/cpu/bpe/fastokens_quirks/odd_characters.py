"""Characters in texts around which fastokens may give other ids than the reference."""

from __future__ import annotations


def has_odd_characters(text: str) -> bool:
    """Whether a text holds U+180E or 'ſ.

    All code points and random texts were compared with tiktoken and tokenizers.
    """
    return "\u180e" in text or "'\u017f" in text
