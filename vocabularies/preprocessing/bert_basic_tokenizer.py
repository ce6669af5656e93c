"""BERT's basic tokenizer, which DNABERT-1's published class runs over its k-mers.

Part of the reference, in plain Python. It uses the Unicode tables of the running Python, as the
published class does, and does not depend on ids.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

PLAIN_CHARACTERS = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 \t\n\r"
)
"""Letters, digits and blanks; any other character may split a word or be removed."""
NO_CHARACTER = "\ufffd"


def is_word_separator(character: str) -> bool:
    """Return whether a character separates words: a tab, a line break or white space."""
    is_control = unicodedata.category(character).startswith("C")
    return character in "\t\n\r" or (character.isspace() and not is_control)


def find_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each word of a text, in characters."""
    begin = 0
    for place, character in enumerate(f"{text} "):
        if is_word_separator(character):
            if begin < place:
                yield begin, place
            begin = place + 1


def split_word(word: str) -> list[str]:
    """Split a word at punctuation; control characters and accents are removed.

    Example: AC- becomes AC and -, A-C becomes A, - and C, and AÇG becomes ACG.
    """
    kept = "".join(c for c in word if not _is_removed(c))
    bare = (c for c in unicodedata.normalize("NFD", kept) if unicodedata.category(c) != "Mn")
    pieces: list[str] = []
    is_open = False  # Whether the next character may join the last piece.
    for character in bare:
        is_sign = _is_punctuation(character)
        if is_open and not is_sign:
            pieces[-1] += character
        else:
            pieces.append(character)
        is_open = not is_sign
    return pieces


def _is_removed(character: str) -> bool:
    is_control = unicodedata.category(character).startswith("C")
    return character == NO_CHARACTER or (is_control and character not in "\t\n\r")


def _is_punctuation(character: str) -> bool:
    """Return whether BERT splits at a character: ASCII signs, including $ and +, or punctuation."""
    is_sign = character.isascii() and character.isprintable() and not character.isalnum()
    return (is_sign and character != " ") or unicodedata.category(character).startswith("P")
