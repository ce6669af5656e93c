"""Finds positions after motifs at which a long row of a vocabulary with motifs can be cut.

A text is split at motifs from left to right, and after a motif it is split as if it began there. A
piece is encoded as if the text ended after it. If a motif ends far enough before the piece's end,
farther than any motif or special token is long, it is also found in the whole text. So the ids of a
piece up to the last such motif are kept, and the next piece begins there.

Example with motifs ACG and GTT: the piece TACGACGG keeps T | ACG, as the second ACG might be a part
of a longer motif, and the next piece begins with ACGG. A text without motifs is one piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import RowError
from vocabularies.batch.post_processing import Content
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
ASCII = 128


@dataclass(frozen=True, slots=True, eq=False)
class MotifCutPoints:
    """Finds cut points in the texts of one vocabulary.

    Attributes:
        is_motif: bool[V], by id.
        reach: the bytes of the longest motif or special token.
    """

    is_motif: NDArray[np.bool_]
    reach: int

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> MotifCutPoints | None:
        """Make the cut points; None without motifs, or if ids may depend on all text."""
        specials = [token for token in vocabulary.special_tokens if token.matched]
        depends = any(t.lstrip or t.rstrip or t.single_word or t.normalized for t in specials)
        if not isinstance(vocabulary.model, Bpe) or vocabulary.normalizers or depends:
            return None
        motifs = {motif.encode() for motif in vocabulary.motifs}
        if not motifs:
            return None
        contents = [token.content.encode() for token in specials]
        is_motif = np.fromiter((token in motifs for token in vocabulary.tokens), np.bool_)
        return cls(is_motif, max(map(len, (*motifs, *contents))))

    def find_end(self, data: Bytes, begin: int, size: int) -> int:
        """Return the end of a piece of about `size` bytes, which does not divide a character."""
        ascii_places = np.flatnonzero(data[begin + size - 1 :] < ASCII)
        return begin + size + int(ascii_places[0]) if len(ascii_places) else len(data)

    def count_kept(self, content: Content, size: int) -> int:
        """Count the ids of a piece of `size` bytes that are certain; needs spans."""
        assert content.spans is not None
        kept = self.is_motif[content.ids] & (content.spans[:, 1] <= size - self.reach)
        places = np.flatnonzero(kept)
        return int(places[-1]) + 1 if len(places) else 0

    def is_certain(self, error: RowError, size: int) -> bool:
        """Return whether the error of a piece of `size` bytes is also that of the whole text."""
        word, _, byte = error.where.partition(" ")
        return word == "byte" and int(byte) <= size - self.reach
