"""Caches the ids of sections of rendered chats, which later requests of the chat repeat.

A rendered text is cut before each occurrence of one special token, the border:

    <|im_start|>system …<|im_end|> ┊ <|im_start|>user …<|im_end|> ┊ <|im_start|>assistant

A text is split at its special tokens before anything else, so that the ids of a section do not
depend on the text around it, and the ids of the whole are those of the sections, one after another.
Nothing is assumed about the template: if it renders an earlier message in another way than before,
the text is another section. Texts are in UTF-8. This module neither depends on HTTP nor computes
ids.
"""

from __future__ import annotations

from collections import OrderedDict
from sys import getsizeof
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vocabularies.model.types import Bpe, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary

MIN_BYTES = 256  # Shorter sections are joined with the next section.
MAX_SHARE = 4  # A text larger than this fraction (1/n) of the cache is not cached.
ENTRY_BYTES = 400  # Memory of an entry in addition to its text and ids.
MAX_BORDERS = 1_024  # Number of vocabularies; beyond it, all borders are chosen again.


class Scope(NamedTuple):
    """The owner of cached sections, so that response times reveal nothing about others' chats.

    Attributes:
        client: the name of the client's key.
        salt: the field `cache_salt` of the request, with which vLLM separates users of one key.
        digest: the digest of the vocabulary.
    """

    client: str
    salt: str
    digest: str


class Section(NamedTuple):
    """The ids of a section.

    Attributes:
        num_ids: the number of ids.
        json: the ids as JSON, separated by commas, without brackets.
    """

    num_ids: int
    json: bytes


class SectionCache:
    """A cache of the most recently used sections.

    Args:
        max_bytes: the maximum memory of all sections in bytes; 0 disables the cache.

    Attributes:
        num_bytes: the memory of the cached sections in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._sections: OrderedDict[tuple[Scope, bytes], Section] = OrderedDict()
        self._borders: dict[str, bytes | None] = {}

    def takes(self, text: bytes) -> bool:
        """Return whether a text is short enough that caching it does not evict all others."""
        return MAX_SHARE * len(text) <= self.max_bytes

    def split(self, vocabulary: Vocabulary, text: bytes) -> list[bytes]:
        """Cut a text into sections before the border; without a border return the whole text."""
        border = self._borders.get(vocabulary.digest)
        if border is None:
            return [text]
        sections, begin = [], 0
        while (end := text.find(border, begin + MIN_BYTES)) >= 0:
            sections.append(text[begin:end])
            begin = end
        sections.append(text[begin:])
        return sections

    def get(self, scope: Scope, text: bytes) -> Section | None:
        """Return the ids of a section; None if they are not cached."""
        key = scope, text
        section = self._sections.get(key)
        if section is not None:
            self._sections.move_to_end(key)
        return section

    def add(self, scope: Scope, text: bytes, section: Section) -> None:
        """Cache the ids of a section; evict the least recently used sections beyond the limit."""
        before = self._sections.pop((scope, text), None)
        if before is not None:
            self.num_bytes -= _measure(text, before)
        self._sections[scope, text] = section
        self.num_bytes += _measure(text, section)
        while self.num_bytes > self.max_bytes:
            (_, oldest), forgotten = self._sections.popitem(last=False)
            self.num_bytes -= _measure(oldest, forgotten)

    def learn_border(self, vocabulary: Vocabulary, ids: NDArray[np.integer[Any]]) -> None:
        """Choose a vocabulary's border: the special token that is most frequent in `ids`."""
        special = {token.id: token for token in vocabulary.special_tokens}
        is_special = np.zeros(len(vocabulary), np.bool_)
        is_special[list(special)] = True
        found, counts = np.unique(ids[is_special[ids]], return_counts=True)
        border = None
        for place in np.argsort(-counts, kind="stable"):
            token = special[int(found[place])]
            if is_border(vocabulary, token):
                border = token.content.encode()
                break
        if len(self._borders) >= MAX_BORDERS:
            self._borders.clear()
        self._borders[vocabulary.digest] = border


def _measure(text: bytes, section: Section) -> int:
    return getsizeof(text) + getsizeof(section.json) + ENTRY_BYTES


def is_border(vocabulary: Vocabulary, token: SpecialToken) -> bool:
    """Return whether any text can be cut before a special token without changing its ids.

    This requires that the token is found wherever its content occurs: no other special token
    overlaps it, and it does not absorb white space before it.
    """
    if not isinstance(vocabulary.model, Bpe | Upstream):
        return False
    if not token.matched or token.normalized or token.lstrip or token.content[:1].isspace():
        return False  # White space may belong to the token before it.
    special = vocabulary.special_tokens
    if any(each.single_word for each in special):
        return False  # Matching depends on neighbouring characters.
    return not any(_reaches_into(each.content, token.content) for each in special)


def _reaches_into(content: str, border: str) -> bool:
    """Return whether another token may match in place of a border, or overlap its start."""
    if content != border and border in content:
        return True
    sizes = range(1, min(len(border), len(content) + 1))
    return any(content.endswith(border[:size]) for size in sizes)
