r"""Short texts encoded as one: what a text costs an encoder besides is as much as 100 characters.

    "to be"  "or"  "not"  ──►  "to be\vor\vnot"  ──►  ids  ──►  cut at \v's id, which is left out

The ids are those of each text alone:

- No token but its own has a \v, so that no merge crosses it: what stands before and behind it in
  a pretoken is merged as if each were a pretoken. Where a pretoken that is a token needs no merges
  (`ignore_merges`: Llama 3, of which 34 such tokens are not reached by them) texts stay apart.
- It is white space, and the text behind it begins with something else. All of RULES end a pretoken
  before it or take it with white space before it, which is one at a text's end, too. They cut
  behind it or take it with letters behind it, which are one at a text's begin, too.
- Special tokens are found whatever stands around them.

Only characters up to U+00FF: among them is no mark that a rule takes for a letter.
What it gains, a tenth of a request of 32 English texts, is in docs/decisions/0022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.post_processing import Content
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

try:
    from service.engines.cpu.bpe import _joined_short_texts as native
except ImportError:
    native = None  # type: ignore[assignment]

SEPARATOR = b"\v"
# cl100k, which ends texts in a way of its own, is encoded as llama3 with its tails apart.
RULES = frozenset({"gpt2", "llama3", "o200k", "qwen2", "tekken", "deepseek_v3"})
LONGEST = 1_024  # Characters of a text above which joining costs more than it saves.
MOST = 16_384  # Of texts that are joined: a cache's size, and some are left for other cores.


@dataclass(frozen=True, slots=True)
class ShortTexts:
    """How texts of one vocabulary are joined.

    Attributes:
        separator_id: the id that stands between two texts.
        by: the extension.
    """

    separator_id: int
    by: Any

    @classmethod
    def of(cls, vocabulary: Vocabulary, rule: str, by: Any = native) -> ShortTexts | None:
        """None where texts must stay apart, or the extension was not built.

        Args:
            vocabulary: of byte-level BPE.
            rule: the pretokenizer by which its texts are cut.
            by: the extension, or None.
        """
        if by is None or rule not in RULES or vocabulary.normalizers:
            return None
        if not isinstance(vocabulary.model, Bpe) or vocabulary.model.ignore_merges:
            return None
        holding = [i for i, token in enumerate(vocabulary.tokens) if token and SEPARATOR in token]
        if len(holding) != 1 or vocabulary.tokens[holding[0]] != SEPARATOR:
            return None
        for token in vocabulary.special_tokens:
            touches = token.lstrip or token.rstrip or token.single_word
            if touches or token.id == holding[0] or SEPARATOR.decode() in token.content:
                return None
        return cls(holding[0], by)

    def join(self, texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
        """The texts, short ones joined; int64[B] begins with how many texts each of these is."""
        listed = texts if isinstance(texts, list) else list(texts)
        groups = np.empty(len(listed), np.int64)
        return self.by.join(listed, SEPARATOR, LONGEST, MOST, groups), groups

    def split(self, content: Content, groups: NDArray[np.int64]) -> Content:
        """The ids of each text out of those of the joined ones."""
        num_joined, num_texts = len(content.offsets) - 1, len(groups)
        ids = np.empty(len(content.ids) - (num_texts - num_joined), np.int32)
        own = Content(ids, np.empty(num_texts + 1, np.int64))
        given = content.ids, content.offsets, groups, self.separator_id
        self.by.split(*given, own.ids, own.offsets)
        return own
