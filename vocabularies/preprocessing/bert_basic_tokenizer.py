"""BERT's basic tokenizer, which DNABERT-1's published class runs over its k-mers.

Part of the oracle (`reference`): plain Python, knows no ids. Unicode is that of the Python that
runs, as it is there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

PLAIN_CHARACTERS = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 \t\n\r"
)
"""Letters and digits, which stay, and blanks, which part words; all else has to be looked at."""
NO_CHARACTER = "\ufffd"


def is_word_separator(character: str) -> bool:
    """Whether a character separates words; other white space among controls does not."""
    is_control = unicodedata.category(character).startswith("C")
    return character in "\t\n\r" or (character.isspace() and not is_control)


def find_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each word of a text begins and ends, in characters."""
    begin = 0
    for place, character in enumerate(f"{text} "):
        if is_word_separator(character):
            if begin < place:
                yield begin, place
            begin = place + 1


def split_word(word: str) -> list[str]:
    """Split a word: control characters and accents go, punctuation is a part by itself.

    Example: AC- becomes AC and -, and A-C three pieces; AÇG becomes ACG.
    """
    kept = "".join(c for c in word if not _is_left_out(c))
    bare = (c for c in unicodedata.normalize("NFD", kept) if unicodedata.category(c) != "Mn")
    pieces: list[str] = []
    is_open = False  # Whether the last piece may go on.
    for character in bare:
        is_sign = _is_punctuation(character)
        if is_open and not is_sign:
            pieces[-1] += character
        else:
            pieces.append(character)
        is_open = not is_sign
    return pieces


def _is_left_out(character: str) -> bool:
    is_control = unicodedata.category(character).startswith("C")
    return character == NO_CHARACTER or (is_control and character not in "\t\n\r")


def _is_punctuation(character: str) -> bool:
    """Whether BERT splits at it: every ASCII sign, $ and + too, and Unicode's punctuation."""
    is_sign = character.isascii() and character.isprintable() and not character.isalnum()
    return (is_sign and character != " ") or unicodedata.category(character).startswith("P")
