r"""Finds positions at which a text of a BPE vocabulary can be cut without changing its ids.

A *border* is a position at which a pretoken ends in any context: between an ASCII letter or digit
and white space or an ASCII sign, and between a Chinese character and a full stop or a comma. Every
known pretokenizer ends a word there, and none depends on the text before a pretoken. Example: "a
cut, here" has borders after "a" and after "cut".

A *run* is a stretch of letters, of one repeated character, of signs, or of blanks. It lies within
one pretoken, or its pretokens end at the same positions when it is cut. It may be cut between two
tokens if the joined text of the tokens on both sides encodes to the same tokens
(docs/internals/text-bpe.md, "Pairs decide"); the encoder of long texts checks that. Most
pretokenizers split white space at its last line break, and a cut may hide this line break. So a run
of blanks must not belong to a pretoken that begins with a line break, and a run of line breaks must
not belong to a pretoken that begins with a sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.motif_pretokenizer import MOTIFS
from vocabularies.preprocessing.pretokenizers import PRETOKENIZERS
from vocabularies.preprocessing.unicode_classes import Mask, class_mask

Bytes = NDArray[np.uint8]
LINE_BREAKS = "\r\n"
SPACES = "".join(map(chr, np.flatnonzero(class_mask("s", "rust")).tolist()))
RUN_BYTES = 256  # On both sides of a cut; above twice the longest token that a run is cut behind.
SEARCH_BYTES = 1 << 16
MAX_TRIES = 64  # Borders inside of special tokens, after which the search ends.
WHOLE_NUMBERS = ("gpt2", "whitespace", "whitespace_split", "none")  # Others cut after three digits.
BY_CASE = ("o200k", "tekken")
BY_WHITE_SPACE = ("gpt2", "whitespace", "whitespace_split")  # These treat line breaks as blanks.
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
    """Finds cut points in the texts of one vocabulary.

    Attributes:
        pretokenizer: the name of the pretokenizer.
        specials: the special tokens that are matched in texts; a cut must not divide them.
        is_next: bool[256], whether a border may precede a byte.
        is_letter: whether a character is a letter, by code point.
    """

    pretokenizer: str
    specials: tuple[bytes, ...]
    is_next: NDArray[np.bool_]
    is_letter: Mask

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> CutPoints | None:
        """Make the cut points of a vocabulary; None if its ids may depend on any later text."""
        model, name = vocabulary.model, vocabulary.pretokenizer
        # A motif may lie across any position, and where it begins depends on the motifs before it.
        is_covered = name in PRETOKENIZERS and name not in ("none", MOTIFS)
        if not isinstance(model, Bpe) or vocabulary.normalizers or not is_covered:
            return None
        specials = [token for token in vocabulary.special_tokens if token.matched]
        if any(token.rstrip or token.single_word or token.normalized for token in specials):
            return None
        is_next = IS_BLANK if name == "whitespace_split" else IS_BLANK | IS_SIGN
        contents = tuple(token.content.encode() for token in specials)
        return cls(name, contents, is_next, class_mask("L", "rust"))

    def find_end(self, data: Bytes, begin: int, size: int) -> tuple[int, bool]:
        """Return the end of a piece of about `size` bytes, and whether the end is a border.

        `data` is uint8[N], the text, and the piece begins at the byte `begin`. The piece is longer,
        up to the whole text, if there is no cut point before.
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
        """Return the last border with begin < border < end in a text uint8[N], or None."""
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
        """Return whether the piece from `begin` may end at a position inside of a run."""
        return self.is_inside_run(data, place) and self._keeps_pretokens(data[begin:place])

    def is_inside_run(self, data: Bytes, place: int) -> bool:
        """Return whether RUN_BYTES on each side of a position are in a run that may be cut."""
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
                return False  # It belongs to the word, or to the signs before it.
            return self.pretokenizer in WHOLE_NUMBERS or not text[0].isnumeric()
        if self.is_letter[codes].all():
            is_simple = text.isascii() and (text.isupper() or text.islower())
            return not by_case or is_simple or all(code in CHINESE for code in codes.tolist())
        return all(code in SIGNS for code in codes.tolist())

    def _keeps_pretokens(self, piece: Bytes) -> bool:
        """Return whether cutting a run at the end of this piece changes no other pretokens.

        These are all pretokens of the piece except the last one, and those of the rest of the run.
        If the piece begins inside a run, the call for the previous piece has checked that cut.
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
