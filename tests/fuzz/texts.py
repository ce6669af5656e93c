"""Makes odd texts of rare scripts, emoji, control characters and long runs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from vocabularies.model.vocabulary import Vocabulary

SPACES = [" ", "\t", "\n", "\r", "\r\n", "\n\r", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0"]
SPACES += ["\u1680", "\u180e", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"]
CONTROLS = ["\x00", "\x01", "\x07", "\x08", "\x1b", "\x7f", "\x80", "\x9f", "\xad", "\u061c"]
CONTROLS += ["\u200b", "\u200c", "\u200d", "\u200e", "\u202e", "\u2066", "\ufff9", "\U000e0001"]
WORDS = ["'s", "'S", "'\u017f", "'ll", "'LL", "\u2019re", "'d", "I'm", "don't", "\u017f", "\u212a"]
WORDS += ["ﬁ", "ß", "ẞ", "İ", "ı", "Ǆ", "ǅ", "ͅ", "ΐ", "ſt", "a", "Z", "the", " of", "1", "12", "0x"]
MARKS = [(0x300, 0x36F), (0x483, 0x489), (0x591, 0x5BD), (0x610, 0x61A), (0x64B, 0x65F)]
MARKS += [(0x900, 0x903), (0x93A, 0x94F), (0xE31, 0xE4E), (0x1AB0, 0x1ACE), (0x20D0, 0x20F0)]
SCRIPTS = [(0x20, 0x7E), (0xA1, 0x24F), (0x370, 0x52F), (0x620, 0x64A), (0x904, 0x939)]
SCRIPTS += [(0xE01, 0xE30), (0x1100, 0x11FF), (0x3041, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3)]
SCRIPTS += [(0x20000, 0x2A6DF), (0x2F800, 0x2FA1D), (0x30000, 0x323AF), (0x10400, 0x1044F)]
NUMBERS = ["٠١٢٣", "०१२", "๑๒", "²³", "½", "Ⅷ", "①", "〇", "𝟘𝟙", "೧", "1,234.5", "1e-9", "00000"]
EMOJI = ["👩", "👨", "👧", "🏳", "❤", "🧑", "💻", "🏴", "🫱", "😀", "☝", "#", "7"]
MODIFIERS = ["\u200d", "\ufe0f", "\ufe0e", "\u20e3", "🏻", "🏿", "\U000e0067", "\U000e007f"]
PIECE_KINDS = 12


def nasty_text(rng: Random, tokens: Sequence[str] = (), max_pieces: int = 12) -> str:
    """Make a text of up to so many pieces of different kinds, `tokens` among them."""
    return "".join(_piece(rng, tokens) for _ in range(rng.randrange(max_pieces + 1)))


def _piece(rng: Random, tokens: Sequence[str]) -> str:
    kind = rng.randrange(PIECE_KINDS)
    if kind == 0 and tokens:
        return "".join(rng.choices(tokens, k=rng.randint(1, 4)))
    if kind == 1:
        return "".join(rng.choices(SPACES, k=rng.randint(1, 5)))
    if kind == 2:
        return rng.choice(CONTROLS)
    if kind == 3:
        return "".join(rng.choices(WORDS, k=rng.randint(1, 3)))
    if kind == 4:
        return _letter(rng, SCRIPTS) + "".join(_letter(rng, MARKS) for _ in range(rng.randrange(5)))
    if kind == 5:
        return rng.choice(NUMBERS)
    if kind == 6:
        return _emoji(rng)
    if kind == 7:
        return "".join(chr(0x1F1E6 + rng.randrange(26)) for _ in range(rng.randint(1, 5)))
    if kind == 8:
        return rng.choice([*SPACES, *WORDS, *CONTROLS, "A", "\u0301", "中"]) * _run_length(rng)
    if kind == 9:
        return chr(rng.choice([*range(0xD800), *(range(0xE000, 0xE100)), 0xFFFD, 0xFFFF, 0x10FFFF]))
    if kind == 10:
        return _letter(rng, [(0xE000, 0x10FFFF)])
    script = rng.choice(SCRIPTS)
    return "".join(_letter(rng, [script]) for _ in range(rng.randint(1, 9)))


def _run_length(rng: Random) -> int:
    return rng.choice([2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127, 129, 255, 257, 600])


def _letter(rng: Random, ranges: Sequence[tuple[int, int]]) -> str:
    return chr(rng.randint(*rng.choice(ranges)))


def _emoji(rng: Random) -> str:
    """Make an emoji sequence, such as a family or flag, often with misplaced joiners."""
    pieces = [rng.choice(EMOJI)]
    for _ in range(rng.randrange(5)):
        pieces += [rng.choice(MODIFIERS), rng.choice(EMOJI)]
    return "".join(pieces)


def nasty_bytes(rng: Random, text: str) -> bytes:
    """Cut or change the UTF-8 of a text so that it is mostly no UTF-8 any more."""
    data = bytearray(text.encode())
    if not data:
        return rng.choice([b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"])
    place = rng.randrange(len(data))
    match rng.randrange(4):
        case 0:
            return bytes(data[place:])
        case 1:
            return bytes(data[:place])
        case 2:
            data[place] = rng.randrange(128, 256)
        case _:
            data[place:place] = rng.choice([b"\xc1\xbf", b"\xed\xbf\xbf", b"\xf8", b"\xe2\x82"])
    return bytes(data)


def strings(vocabulary: Vocabulary, rng: Random) -> list[str]:
    """Return some tokens as text, special ones included; they merge across borders of pieces."""
    known = [token for token in vocabulary.tokens if token]
    some = rng.choices(known, k=200) + [t.content.encode() for t in vocabulary.special_tokens]
    return [token.decode(errors="ignore") for token in some]
