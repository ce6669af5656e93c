"""Long rows of vocabularies with motifs, in pieces that end behind a motif.

A text is cut at motifs from the left on, and behind a motif it is cut as if it began there. A piece
is encoded as if the text ended with it; what is found so far before its end that no motif or
special token reaches over it is found in the whole text, too. So a piece keeps its ids up to the
last such motif, and the next one begins there.

Example, motifs ACG and GTT: the piece TACGACGG keeps T | ACG, as the second ACG might be part of a
longer motif, and what is left begins ACGG. A text without motifs is one piece.
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
    """Where pieces of one vocabulary's texts may end.

    Attributes:
        is_motif: bool[V], by id.
        reach: bytes of the longest motif or special token.
    """

    is_motif: NDArray[np.bool_]
    reach: int

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> MotifCutPoints | None:
        """None where there are no motifs, or the ids of a part may depend on more than is seen."""
        specials = [token for token in vocabulary.special_tokens if token.matched]
        odd = any(t.lstrip or t.rstrip or t.single_word or t.normalized for t in specials)
        if not isinstance(vocabulary.model, Bpe) or vocabulary.normalizers or odd:
            return None
        motifs = {motif.encode() for motif in vocabulary.motifs}
        contents = [token.content.encode() for token in specials]
        is_motif = np.fromiter((token in motifs for token in vocabulary.tokens), np.bool_)
        return cls(is_motif, max(map(len, (*motifs, *contents)))) if motifs else None

    def piece_end(self, data: Bytes, begin: int, size: int) -> int:
        """Behind an ASCII letter, so that no character is cut in two."""
        behind = np.flatnonzero(data[begin + size - 1 :] < ASCII)
        return begin + size + int(behind[0]) if len(behind) else len(data)

    def num_kept(self, content: Content, size: int) -> int:
        """How many ids of a piece of so many bytes are those of the whole text; needs spans."""
        assert content.spans is not None
        kept = self.is_motif[content.ids] & (content.spans[:, 1] <= size - self.reach)
        places = np.flatnonzero(kept)
        return int(places[-1]) + 1 if len(places) else 0

    def is_sure(self, error: RowError, size: int) -> bool:
        """Whether what a piece of so many bytes is refused for is the whole text's, too."""
        word, _, byte = error.where.partition(" ")
        return word == "byte" and int(byte) <= size - self.reach
