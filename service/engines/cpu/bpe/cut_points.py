r"""Where a text of a BPE vocabulary may be cut, so that its parts have the ids of the whole.

A *border* is a place where a pretoken ends whatever stands around: behind an ASCII letter or digit
in front of white space or an ASCII sign, and behind a Chinese character in front of a full stop or
a comma. Every pattern here ends a word there, and looks at nothing before a pretoken's begin.

Inside of a *run* one pretoken goes on, or pretokens end where they would end in the parts, too:
letters alone, one character again and again, signs, blanks. A run may be cut between two tokens
that are enc of what they spell (docs/internals/text-bpe.md, "Pairs decide"), which the encoder of
long texts checks.
Of white space most rules make pretokens by its last line break, which a cut hides: blanks may be no
part of one that begins with a line break, nor line breaks of one that begins with a sign.

Example: "a cut, here" has borders behind "a" and behind "cut".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.engines.cpu.bpe.fastokens_quirks.cl100k_trailing_whitespace import LINE_BREAKS, SPACES
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.motif_pretokenizer import MOTIFS
from vocabularies.preprocessing.pretokenizers import PRETOKENIZERS
from vocabularies.preprocessing.unicode_classes import Mask, class_mask

Bytes = NDArray[np.uint8]
RUN_BYTES = 256  # To both sides of a cut; above twice the longest token that a run is cut behind.
SEARCH_BYTES = 1 << 16
MAX_TRIES = 64  # Borders inside of special tokens, after which no more are looked for.
WHOLE_NUMBERS = ("gpt2", "whitespace", "whitespace_split", "none")  # Others cut after three digits.
BY_CASE = ("o200k", "tekken")
BY_WHITE_SPACE = ("gpt2", "whitespace", "whitespace_split")  # To which line breaks are blanks.
CHINESE_STOPS = ("。".encode(), "，".encode(), "、".encode())
CHINESE = range(0x4E00, 0x9FA6)
SIGNS = frozenset(map(ord, '!"#$%&()*+,-./:;<=>?@[\\]^`{|}~'))  # Neither ' nor _: parts of words.


def _mask(codes: bytes) -> NDArray[np.bool_]:
    mask = np.zeros(256, np.bool_)
    mask[np.frombuffer(codes, np.uint8)] = True
    return mask


IS_WORD = _mask(b"".join(bytes([i]) for i in range(128) if chr(i).isalnum()))
IS_BLANK = _mask(b" \t\r\n")
IS_SIGN = _mask(bytes(SIGNS))


@dataclass(frozen=True, slots=True, eq=False)
class CutPoints:
    """Finds places in the texts of one vocabulary.

    Attributes:
        pretokenizer: its name.
        specials: what is looked for in texts and must not be cut in two.
        is_next: bool[256], bytes in front of which a border may be.
        is_letter: bool[code points].
    """

    pretokenizer: str
    specials: tuple[bytes, ...]
    is_next: NDArray[np.bool_]
    is_letter: Mask

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> CutPoints | None:
        """None where the ids of a part may depend on more than is seen here."""
        model, name = vocabulary.model, vocabulary.pretokenizer
        # A motif lies across any place, and where one begins depends on those before it.
        known = name in PRETOKENIZERS and name not in ("none", MOTIFS)
        if not isinstance(model, Bpe) or vocabulary.normalizers or not known:
            return None
        specials = [token for token in vocabulary.special_tokens if token.matched]
        if any(token.rstrip or token.single_word or token.normalized for token in specials):
            return None
        is_next = IS_BLANK if name == "whitespace_split" else IS_BLANK | IS_SIGN
        contents = tuple(token.content.encode() for token in specials)
        return cls(name, contents, is_next, class_mask("L", "rust"))

    def piece_end(self, data: Bytes, begin: int, size: int) -> tuple[int, bool]:
        """Where a piece may end that is about `size` bytes long, and whether that is a border.

        What has no such place near is longer, up to the end of the text.
        """
        low = begin + size // 2
        for target in range(begin + size, len(data), size):
            if (border := self.last_border(data, low, target)) is not None:
                return border, True
            for place in range(target, target - size // 2, -max(1, size // 8)):
                if self.may_cut_run(data, begin, place):
                    return place, False
            low = target - 1
        return len(data), True

    def last_border(self, data: Bytes, begin: int, end: int) -> int | None:
        """The last border begin < p < end of a text uint8[N]; None where there is none."""
        tries = 0
        for high in range(end, begin + 1, -SEARCH_BYTES):
            low = max(begin, high - SEARCH_BYTES - 1)
            before, behind = data[low : high - 1], data[low + 1 : high]
            places = np.flatnonzero(IS_WORD[before] & self.is_next[behind]) + low + 1
            for place in places[::-1].tolist():
                if not self._cuts_special(data, place):
                    return int(place)
                tries += 1
                if tries == MAX_TRIES:
                    return None
        return self._last_chinese(data, begin, end)

    def _last_chinese(self, data: Bytes, begin: int, end: int) -> int | None:
        if self.pretokenizer == "whitespace_split":
            return None
        for high in range(end, begin, -SEARCH_BYTES):
            low = max(begin, high - SEARCH_BYTES)
            text = data[low:high].tobytes()
            for stop in CHINESE_STOPS:
                place = low + text.rfind(stop)
                if place >= low + 3 and self._is_chinese(data[place - 3 : place]):
                    if not self._cuts_special(data, place):
                        return place
        return None

    def _is_chinese(self, character: Bytes) -> bool:
        try:
            text = character.tobytes().decode()
        except UnicodeDecodeError:
            return False
        return len(text) == 1 and ord(text) in CHINESE

    def may_cut_run(self, data: Bytes, begin: int, place: int) -> bool:
        """Whether a piece may end at a place inside of a run."""
        return self.is_inside_run(data, place) and self._is_cut_alike(data[begin:place])

    def is_inside_run(self, data: Bytes, place: int) -> bool:
        """Whether RUN_BYTES to both sides of a place are a run that may be cut there."""
        if not RUN_BYTES <= place <= len(data) - RUN_BYTES or (data[place] & 0xC0) == 0x80:
            return False
        around = data[place - RUN_BYTES : place + RUN_BYTES].tobytes()
        text = around.decode(errors="ignore")  # Characters at both ends may be cut in two.
        if len(around) - len(text.encode()) > 6 or self._cuts_special(data, place):
            return False
        return self._is_run(text)

    def _is_run(self, text: str) -> bool:
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        first = int(codes[0])
        by_case = self.pretokenizer in BY_CASE
        if (codes == first).all():
            if by_case and class_mask("M", "rust")[first]:
                return False  # Of a word, or of the signs in front of it.
            return self.pretokenizer in WHOLE_NUMBERS or not text[0].isnumeric()
        if self.is_letter[codes].all():
            is_simple = text.isascii() and (text.isupper() or text.islower())
            return not by_case or is_simple or all(code in CHINESE for code in codes.tolist())
        return all(code in SIGNS for code in codes.tolist())

    def _is_cut_alike(self, piece: Bytes) -> bool:
        """Whether a piece that ends in a run has the pretokens of the whole, up to the last one.

        And the rest of the run those that it has there. Where a piece begins inside of a run, that
        was asked about what is in front.
        """
        last = piece[-RUN_BYTES:].tobytes().decode(errors="ignore")[-1:]
        if last not in SPACES or self.pretokenizer in BY_WHITE_SPACE:
            return True
        text = piece.tobytes()
        if last in LINE_BREAKS:
            before = text.rstrip(b"\r\n")[-1:].decode(errors="replace")
            return before in SPACES or before.isalnum()
        behind = text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]
        between = behind.rstrip(last.encode()).decode(errors="ignore")
        return len(behind) == len(text) or bool(between.strip(SPACES))

    def _cuts_special(self, data: Bytes, place: int) -> bool:
        for content in self.specials:
            size = len(content) - 1
            if content in data[max(0, place - size) : place + size].tobytes():
                return True
        return False
