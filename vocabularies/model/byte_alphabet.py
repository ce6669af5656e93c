"""GPT-2's byte-level alphabet, which represents each byte by one printable character.

Source: the function bytes_to_unicode of GPT-2's encoder.py; every byte-level tokenizer.json relies
on this mapping.
"""

from __future__ import annotations

UTF8_BYTES = frozenset(range(256)) - {0xC0, 0xC1, *range(0xF5, 0x100)}
"""The bytes that UTF-8 texts can contain; a vocabulary learnt from texts may lack the others."""


def _byte_to_character() -> tuple[str, ...]:
    """Map printable Latin-1 bytes to themselves, the other 68 to U+0100 onwards, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_TO_CHARACTER = _byte_to_character()
CHARACTER_TO_BYTE = {character: byte for byte, character in enumerate(BYTE_TO_CHARACTER)}
_ENCODE = {byte: character for byte, character in enumerate(BYTE_TO_CHARACTER)}


def to_alphabet(token: bytes) -> str:
    """Convert bytes to characters of GPT-2's alphabet. Example: ``b" the"`` -> ``"Ġthe"``."""
    return token.decode("latin-1").translate(_ENCODE)


def from_alphabet(token: str) -> bytes:
    """Convert a string in GPT-2's alphabet to the bytes that it represents.

    Raises:
        KeyError: a character is not in the alphabet.
    """
    return bytes([CHARACTER_TO_BYTE[character] for character in token])


def added_token_bytes(content: str) -> bytes:
    """Decode an added token's content as the byte-level decoder of `tokenizers` does.

    Example: "Ġthe" is decoded to " the" and "é" to the byte E9. "é!中" has a character outside of
    the alphabet, so it is decoded to its own UTF-8.
    """
    try:
        return from_alphabet(content)
    except KeyError:
        return content.encode()
