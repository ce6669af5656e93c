r"""White space at the end of a text, the only place where cl100k cuts other pretokens than llama3.

At the end of a text, and before a special token, cl100k takes white space whole; llama3 first takes
it up to its last line break: "a\n " is "a", "\n " in the one and "a", "\n", " " in the other. So an
encoder that is fast for llama3 serves cl100k too, once such ends are cut off and encoded here.
Knows neither that encoder nor spans.
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
    """The tails of one vocabulary's texts; `of` makes it.

    Attributes:
        tokenizer: a BPE of the tokens that white space can become, which takes a text whole.
        ids: int32[...], the vocabulary's id for each of the tokenizer's.
        contents: what is looked for in texts; behind it a text begins anew.
        is_special: bool[V], the ids of `contents`; `first_special` is the lowest.
        before_special: a tail that stands in front of one of `contents`; None where there is none.
    """

    tokenizer: fastokens.Tokenizer
    ids: NDArray[np.int32]
    contents: tuple[str, ...]
    is_special: NDArray[np.bool_]
    first_special: int
    before_special: re.Pattern[str] | None

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Cl100kTails | None:
        """The tails of a byte-level BPE with a token for each byte.

        None where a special token ends in white space, which a tail might then be a part of.
        """
        specials = vocabulary.special_tokens
        if any(token.content[-1] in SPACES for token in specials):
            return None
        small, ids = _white_space_alone(vocabulary)
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
        """Row -> where its tail begins; and the rows of which only the slow way is certain.

        Those end in white space behind what may be a special token, where a text begins anew.
        """
        begins: dict[int, int] = {}
        unsure: set[int] = set()
        for row, text in enumerate(texts):
            if text[-1:] not in BLANKS or not text:
                continue
            head = text.rstrip(SPACES)
            if head.endswith(self.contents):
                unsure.add(row)
            elif (begin := _tail_begin(text, len(head))) is not None:
                begins[row] = begin
        return begins, unsure

    def before_specials(self, texts: Sequence[str], content: Content) -> set[int]:
        """The rows with a tail in front of a special token; the content has those tokens' ids."""
        # Most texts hold none, and the largest id is found faster than all are looked up.
        if not len(content.ids) or int(content.ids.max()) < self.first_special:
            return set()
        assert self.before_special is not None
        found = np.flatnonzero(self.is_special[content.ids])
        holding = np.unique(np.searchsorted(content.offsets, found, side="right") - 1)
        return {row for row in holding.tolist() if self.before_special.search(texts[row])}

    def append(self, content: Content, tails: Mapping[int, str]) -> Content:
        """The content with the ids of tails at the end of their rows, which are in order."""
        ids, offsets = self.tokenizer.encode_batch_flat(list(tails.values()), False, True)
        added = self.ids[np.frombuffer(ids, np.int32)]
        sizes = np.zeros(len(content.offsets) - 1, np.int64)
        sizes[list(tails)] = np.diff(np.frombuffer(offsets, np.int64))
        places = np.repeat(content.offsets[1:], sizes)
        moved = content.offsets.copy()
        moved[1:] += np.cumsum(sizes)
        return Content(np.insert(content.ids, places, added), moved)


def _tail_begin(text: str, head_end: int) -> int | None:
    """Where the white space begins that cl100k takes whole and llama3 does not; None: nowhere.

    The text ends in a blank. Line breaks right behind a sign belong to the sign's pretoken.
    """
    tail = text[head_end:]
    if head_end and _is_sign(text[head_end - 1]):
        tail = tail.lstrip(LINE_BREAKS)
    return len(text) - len(tail) if "\n" in tail or "\r" in tail else None


def _is_sign(character: str) -> bool:
    code_point = ord(character)
    return not (class_mask("L", "rust")[code_point] or class_mask("N", "rust")[code_point])


def _white_space_alone(vocabulary: Vocabulary) -> tuple[Vocabulary, NDArray[np.int32]]:
    """The part of a vocabulary that white space can reach, and its ids there."""
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
