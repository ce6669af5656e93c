"""Finds texts with characters on which fastokens may differ from the reference."""

from __future__ import annotations


def has_odd_characters(text: str) -> bool:
    """Return whether a text contains U+180E or 'ſ.

    A comparison of all code points and of random texts with tiktoken and tokenizers found these.
    """
    return "\u180e" in text or "'\u017f" in text
