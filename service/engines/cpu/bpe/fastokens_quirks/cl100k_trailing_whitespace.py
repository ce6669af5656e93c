r"""Encodes white space at the end of texts, where alone the rules cl100k and llama3 differ.

At the end of a text, and before a special token, white space is one pretoken for cl100k; llama3
splits it behind its last line break. Example: "a\n " is "a", "\n " for cl100k, and "a", "\n", " "
for llama3. fastokens is fast for llama3, so it encodes cl100k's texts by llama3's rule without such
tails, and this module encodes the tails. Knows neither that encoder nor spans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import fastokens
import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.post_processing import Content
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.unicode_classes import class_mask

LINE_BREAKS = "\r\n"
SPACES = "".join(map(chr, np.flatnonzero(class_mask("s", "rust")).tolist()))
SPACE_BYTES = bytes(sorted(set(SPACES.encode())))
BLANKS = "".join(sorted(set(SPACES) - set(LINE_BREAKS)))


@dataclass(frozen=True, slots=True, eq=False)
class Cl100kTails:
    """Finds and encodes the tails of one vocabulary's texts; `of` makes it.

    Attributes:
        tokenizer: a BPE of the tokens of white space, without a pretokenizer.
        ids: int32, the vocabulary's id for each id of `tokenizer`.
        contents: the special tokens that are matched in texts; a text begins anew behind each.
        is_special: bool[V], the ids of `contents`.
        first_special: the lowest id of `contents`.
        before_special: matches a tail before one of `contents`; None: there are none.
    """

    tokenizer: fastokens.Tokenizer
    ids: NDArray[np.int32]
    contents: tuple[str, ...]
    is_special: NDArray[np.bool_]
    first_special: int
    before_special: re.Pattern[str] | None

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Cl100kTails | None:
        """Make the tails of a byte-level BPE with a token for each byte.

        None: a special token ends in white space, so that a tail might be a part of it.
        """
        specials = vocabulary.special_tokens
        if any(token.content[-1] in SPACES for token in specials):
            return None
        small, ids = _keep_white_space(vocabulary)
        is_special = np.zeros(len(vocabulary), np.bool_)
        matched = [token for token in specials if token.matched]
        is_special[[token.id for token in matched]] = True
        first = min((token.id for token in matched), default=len(vocabulary))
        contents = tuple(token.content for token in matched)
        choices = "|".join(map(re.escape, contents))
        pattern = re.compile(f"[{LINE_BREAKS}][{BLANKS}]+(?:{choices})") if contents else None
        tokenizer = fastokens.Tokenizer.from_json_str(tokenizer_json(small))
        return cls(tokenizer, ids, contents, is_special, first, pattern)

    def find(self, texts: Sequence[str]) -> tuple[dict[int, int], set[int]]:
        """Find the begin of each row's tail, by row; and the rows that need the reference.

        The latter end in white space behind a special token, or behind text that looks like one.
        """
        begins: dict[int, int] = {}
        uncertain: set[int] = set()
        for row, text in enumerate(texts):
            if text[-1:] not in BLANKS or not text:
                continue
            head = text.rstrip(SPACES)
            if head.endswith(self.contents):
                uncertain.add(row)
            elif (begin := _find_tail(text, len(head))) is not None:
                begins[row] = begin
        return begins, uncertain

    def find_before_specials(self, texts: Sequence[str], content: Content) -> set[int]:
        """Find the rows with a tail before a special token; `content` has the ids of the rows."""
        # Most texts have none, and finding the largest id is faster than looking up all of them.
        if not len(content.ids) or int(content.ids.max()) < self.first_special:
            return set()
        assert self.before_special is not None
        found = np.flatnonzero(self.is_special[content.ids])
        rows = np.unique(np.searchsorted(content.offsets, found, side="right") - 1)
        return {row for row in rows.tolist() if self.before_special.search(texts[row])}

    def append(self, content: Content, tails: Mapping[int, str]) -> Content:
        """Append the ids of tails to their rows; tails are in the order of rows."""
        ids, offsets = self.tokenizer.encode_batch_flat(list(tails.values()), False, True)
        added = self.ids[np.frombuffer(ids, np.int32)]
        sizes = np.zeros(len(content.offsets) - 1, np.int64)
        sizes[list(tails)] = np.diff(np.frombuffer(offsets, np.int64))
        places = np.repeat(content.offsets[1:], sizes)
        moved = content.offsets.copy()
        moved[1:] += np.cumsum(sizes)
        return Content(np.insert(content.ids, places, added), moved)


def _find_tail(text: str, head_end: int) -> int | None:
    """Find the begin of the white space at the end that llama3 would split; None: there is none.

    The text ends in a blank, and its white space begins at `head_end`. Line breaks right behind a
    sign belong to the sign's pretoken.
    """
    tail = text[head_end:]
    if head_end and _is_sign(text[head_end - 1]):
        tail = tail.lstrip(LINE_BREAKS)
    return len(text) - len(tail) if "\n" in tail or "\r" in tail else None


def _is_sign(character: str) -> bool:
    code_point = ord(character)
    return not (class_mask("L", "rust")[code_point] or class_mask("N", "rust")[code_point])


def _keep_white_space(vocabulary: Vocabulary) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Keep only the tokens that can occur in white space; return them, and the ids they had."""
    model, tokens = vocabulary.model, vocabulary.tokens
    assert isinstance(model, Bpe)
    special = {token.id for token in vocabulary.special_tokens}
    kept = [
        (token_id, token)
        for token_id, token in enumerate(tokens)
        if token and token_id not in special and (len(token) == 1 or not token.strip(SPACE_BYTES))
    ]
    spelled = dict(kept)
    known = set(spelled.values())
    number = {token_id: i for i, token_id in enumerate(spelled)}
    merges = tuple(
        (number[left], number[right])
        for left, right in model.merges
        if left in number and right in number and spelled[left] + spelled[right] in known
    )
    small = Bpe(merges, ignore_merges=model.ignore_merges)
    return Vocabulary(tuple(spelled.values()), small), np.array([*spelled], np.int32)
