"""Encodes a part of a text by a character model, in the simplest form.

Part of the reference, in plain Python. It does not depend on templates.
"""

from __future__ import annotations

from typing import NamedTuple

from vocabularies.model.types import Characters
from vocabularies.reference.special_tokens import AlignedText, Token


class Letter(NamedTuple):
    """A character, converted by the case rule, with its begin and end byte in the text."""

    character: str
    begin: int
    end: int


def find_letters(text: str, case: str) -> list[Letter]:
    """Find the letters of a text; in upper case one character may become several.

    Args:
        text: the text.
        case: "upper" or "keep".
    """
    letters, begin = [], 0
    for character in text:
        end = begin + len(character.encode())
        written = character.upper() if case == "upper" else character
        letters += [Letter(letter, begin, end) for letter in written]
        begin = end
    return letters


def encode_characters(model: Characters, part: AlignedText) -> list[Token]:
    """Encode each character or byte as one id.

    Example: with A = 7, T = 10 and the unknown id 6, the text AéT is encoded as 7 6 10. With unit
    "byte", é is two bytes and becomes two ids.
    """
    ids = dict(model.letter_ids)
    tokens = []
    for letter, begin, end in find_letters(part.text, model.case):
        units = [letter] if model.unit == "codepoint" else [chr(b) for b in letter.encode()]
        exact = len(units) == end - begin
        for i, unit in enumerate(units):
            token_id = ids.get(unit, model.unknown_id)
            assert token_id is not None
            if exact:
                tokens.append(part.token(token_id, begin + i, begin + i + 1))
            else:
                tokens.append(part.token(token_id, begin, end))
    return tokens
