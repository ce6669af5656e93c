r"""Joins short texts so that an encoder gets them as one, as each call costs 100 characters' time.

    "to be"  "or"  "not"  ──►  "to be\vor\vnot"  ──►  ids  ──►  split at \v's id, which is dropped

The ids are those of each text alone:

- \v is in no token but its own, so no merge crosses it: the parts of a pretoken before and behind
  it are merged like pretokens of their own. With `ignore_merges`, where a pretoken that is a token
  needs no merges, texts are not joined (Llama 3 has 34 tokens that merges do not give).
- \v is white space, and the text behind it begins with something else. All of RULES end a pretoken
  before \v, or join \v with the white space before it, which is a pretoken at a text's end, too.
  They end a pretoken behind \v, or join \v with the letters behind it, which are a pretoken at a
  text's begin, too.
- Special tokens are found whatever text is around them.

Only texts of characters up to U+00FF are joined: none of these is a mark that a rule counts as a
letter. docs/decisions/0022 has the gain, a tenth of the time of a request of 32 English texts.
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
# cl100k is not among them, as it is encoded by llama3's rule, with white space at the end apart.
RULES = frozenset({"gpt2", "llama3", "o200k", "qwen2", "tekken", "deepseek_v3"})
MAX_CHARACTERS = 1_024  # Of a text that is joined; joining longer ones costs more than it saves.
MAX_GROUP = 16_384  # Characters of a joined text: it fits a cache, and other cores get some texts.


@dataclass(frozen=True, slots=True)
class ShortTexts:
    """Joins the short texts of one vocabulary, and splits their ids.

    Attributes:
        separator_id: the id between two texts.
        extension: the C++ extension.
    """

    separator_id: int
    extension: Any

    @classmethod
    def of(cls, vocabulary: Vocabulary, rule: str, extension: Any = native) -> ShortTexts | None:
        """Make it for a vocabulary; None: texts must not be joined, or there is no extension.

        Args:
            vocabulary: a vocabulary of byte-level BPE.
            rule: the pretokenizer that cuts its texts.
            extension: the C++ extension; None: it was not built.
        """
        if extension is None or rule not in RULES or vocabulary.normalizers:
            return None
        if not isinstance(vocabulary.model, Bpe) or vocabulary.model.ignore_merges:
            return None
        ids = [i for i, token in enumerate(vocabulary.tokens) if token and SEPARATOR in token]
        if len(ids) != 1 or vocabulary.tokens[ids[0]] != SEPARATOR:
            return None
        [separator_id] = ids
        for token in vocabulary.special_tokens:
            touches = token.lstrip or token.rstrip or token.single_word
            if touches or token.id == separator_id or SEPARATOR.decode() in token.content:
                return None
        return cls(separator_id, extension)

    def join(self, texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
        """Join short texts into groups; return them, and int64[B] with the size of each first."""
        listed = texts if isinstance(texts, list) else list(texts)
        sizes = np.empty(len(listed), np.int64)
        groups = self.extension.join(listed, SEPARATOR, MAX_CHARACTERS, MAX_GROUP, sizes)
        return groups, sizes

    def split(self, content: Content, sizes: NDArray[np.int64]) -> Content:
        """Split the ids of groups into those of each text; `sizes` is from `join`."""
        num_groups, num_texts = len(content.offsets) - 1, len(sizes)
        ids = np.empty(len(content.ids) - (num_texts - num_groups), np.int32)
        offsets = np.empty(num_texts + 1, np.int64)
        self.extension.split(content.ids, content.offsets, sizes, self.separator_id, ids, offsets)
        return Content(ids, offsets)
