"""Caches the ids of sections of rendered chats, which later requests of the chat repeat.

A rendered text is cut before each occurrence of one special token, the border:

    <|im_start|>system …<|im_end|> ┊ <|im_start|>user …<|im_end|> ┊ <|im_start|>assistant

A text is split at its special tokens before anything else, so that the ids of a section do not
depend on the text around it, and the ids of the whole are those of the sections, one after another.
Nothing is assumed about the template: if it renders an earlier message in another way than before,
the text is another section. Each section refers to the one that followed it last, with which the
text is compared first, as searching the border and hashing a section take several times as long.
Texts are in UTF-8. This module neither depends on HTTP nor computes ids.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from sys import getsizeof
from typing import Any, NamedTuple
from weakref import ref

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


@dataclass(eq=False, slots=True, weakref_slot=True)
class Section:
    """A section and its ids.

    Attributes:
        text: the text.
        num_ids: the number of ids.
        json: the ids as JSON, separated by commas, without brackets.
        next: the section of the same scope that followed this one in the last text.
    """

    text: bytes
    num_ids: int
    json: bytes
    next: ref[Section] | None = None

    def find_next(self, text: bytes, begin: int, border: bytes) -> Section | None:
        """Return the next section if `text` continues with it at `begin`, up to a border."""
        section = None if self.next is None else self.next()
        if section is None or not text.startswith(section.text, begin):
            return None
        size = len(section.text)
        is_end = begin + size == len(text)
        is_cut = size >= MIN_BYTES and text.startswith(border, begin + size)
        return section if is_end or is_cut else None


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

    def find(self, scope: Scope, text: bytes) -> list[Section | bytes]:
        """Cut a text before each border; return the sections, or their texts if not cached.

        Without a border the whole text is one section.
        """
        border = self._borders.get(scope.digest)
        found: list[Section | bytes] = []
        begin, last = 0, None
        while begin < len(text) or not found:
            section = None
            if last is not None and border is not None:
                section = last.find_next(text, begin, border)
            if section is None:
                part = _cut(text, begin, border)
                section = self._sections.get((scope, part))
                if section is None:
                    found.append(part)
                    begin, last = begin + len(part), None
                    continue
                if last is not None:
                    last.next = ref(section)
            key = scope, section.text
            if key in self._sections:  # Else it was evicted while another request still uses it.
                self._sections.move_to_end(key)
            found.append(section)
            begin, last = begin + len(section.text), section
        return found

    def add(self, scope: Scope, section: Section) -> None:
        """Cache a section; evict the least recently used sections beyond the limit."""
        before = self._sections.pop((scope, section.text), None)
        if before is not None:
            self.num_bytes -= _measure(before)
        self._sections[scope, section.text] = section
        self.num_bytes += _measure(section)
        while self.num_bytes > self.max_bytes:
            _, oldest = self._sections.popitem(last=False)
            self.num_bytes -= _measure(oldest)

    def learn_border(self, vocabulary: Vocabulary, ids: NDArray[np.integer[Any]]) -> None:
        """Choose a vocabulary's border: the special token that is most frequent in ids [T]."""
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


def link(sections: list[Section]) -> None:
    """Record which section follows which, for the sections of one text and scope."""
    for section, following in pairwise(sections):
        section.next = ref(following)


def _cut(text: bytes, begin: int, border: bytes | None) -> bytes:
    """Return the section of a text that starts at `begin`."""
    if border is None:
        return text
    end = text.find(border, begin + MIN_BYTES)
    return text[begin:] if end < 0 else text[begin:end]


def _measure(section: Section) -> int:
    return getsizeof(section.text) + getsizeof(section.json) + ENTRY_BYTES


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
