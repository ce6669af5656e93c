"""Encodes one pretoken by byte-pair encoding, in the simplest form.

Part of the reference, in plain Python. It does not depend on special tokens, normalizers or
templates.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.special_tokens import AlignedText, Token

MAX_PLAIN_SYMBOLS = 64


class Symbol(NamedTuple):
    """An id while merging, with its begin and end byte in the pretoken."""

    id: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class BpeRules:
    """A BPE model as dictionaries.

    Attributes:
        merges: {(left id, right id): (rank, merged id)}; if a pair is listed twice, it has the
            later rank, as in `tokenizers`.
        token_ids: {bytes: id}; if an ordinary and a special token have the same bytes, the id of
            the ordinary one.
    """

    merges: Mapping[tuple[int, int], tuple[int, int]]
    token_ids: Mapping[bytes, int]


@functools.lru_cache(maxsize=32)
def make_bpe_rules(vocabulary: Vocabulary) -> BpeRules:
    """Make the dictionaries of a vocabulary whose model is Bpe."""
    model = vocabulary.model
    assert isinstance(model, Bpe)
    made = enumerate(vocabulary.merged_ids.tolist())
    merges = dict(zip(model.merges, made, strict=True))
    return BpeRules(merges, token_ids_of(vocabulary))


@functools.lru_cache(maxsize=32)
def token_ids_of(vocabulary: Vocabulary) -> Mapping[bytes, int]:
    """Return {bytes: id} of all tokens, as in `BpeRules`, without making the rules."""
    return vocabulary.find_token_ids()


def forget_rules() -> None:
    """Free the dictionaries of all vocabularies, which are large and seldom used after a load."""
    make_bpe_rules.cache_clear()
    token_ids_of.cache_clear()


def encode_bpe(vocabulary: Vocabulary, pretoken: AlignedText) -> list[Token]:
    """Encode one pretoken.

    Example (Wikipedia's, https://en.wikipedia.org/wiki/Byte-pair_encoding): with the merges
    Z = aa, Y = ab, X = ZY the text aaabdaaabac becomes aa|ab|d|aa|ab|a|c by the first two ranks
    and aaab|d|aaab|a|c by the third: X d X a c.
    """
    model, rules = vocabulary.model, make_bpe_rules(vocabulary)
    assert isinstance(model, Bpe)
    whole = pretoken.text.encode()
    if model.ignore_merges and whole in rules.token_ids:
        return [pretoken.token(rules.token_ids[whole], 0, len(whole))]
    symbols = _first_symbols(model, rules, pretoken.text)
    plain = len(symbols) <= MAX_PLAIN_SYMBOLS
    merged = merge(symbols, rules) if plain else merge_long(symbols, rules)
    return [pretoken.token(*symbol) for symbol in merged]


def _first_symbols(model: Bpe, rules: BpeRules, text: str) -> list[Symbol]:
    """Find the ids of bytes or characters; one without an id gets the unknown id or is dropped."""
    symbols: list[Symbol] = []
    begin, unknown_before = 0, False
    parts = [bytes([byte]) for byte in text.encode()] if model.byte_level else map(str.encode, text)
    for part in parts:
        end = begin + len(part)
        token_id = rules.token_ids.get(part)
        unknown = token_id is None
        if unknown and model.unknown_id is not None:
            token_id = model.unknown_id
            if model.fuse_unknown and unknown_before:
                begin = symbols.pop().begin
        if token_id is not None:
            symbols.append(Symbol(token_id, begin, end))
        begin, unknown_before = end, unknown
    return symbols


def merge(symbols: list[Symbol], rules: BpeRules) -> list[Symbol]:
    """Merge the leftmost pair of the lowest rank until no pair has a rank; this defines BPE."""
    symbols = list(symbols)
    while True:
        lowest_rank, first, merged_id = -1, -1, -1
        for place in range(len(symbols) - 1):
            found = rules.merges.get((symbols[place].id, symbols[place + 1].id))
            if found is None:
                continue
            rank, joined_id = found
            if first < 0 or rank < lowest_rank:
                lowest_rank, first, merged_id = rank, place, joined_id
        if first < 0:
            return symbols
        merged = Symbol(merged_id, symbols[first].begin, symbols[first + 1].end)
        symbols[first : first + 2] = [merged]


def merge_long(symbols: list[Symbol], rules: BpeRules) -> list[Symbol]:
    """Merge long texts as `merge` does, by a queue of all mergeable pairs, sorted by (rank, place).

    A pair in the queue is skipped if one of its symbols has been merged meanwhile. Symbols only
    become longer, so the pair cannot occur again at this place.
    """
    slots: list[Symbol | None] = list(symbols)
    last = len(slots)
    before = list(range(-1, last - 1))
    after = list(range(1, last + 1))
    queue: list[tuple[int, int, int, int]] = []  # Rank, place, left id, right id.

    def push(left: int, right: int) -> None:
        if left >= 0 and right < last:
            pair = slots[left].id, slots[right].id  # type: ignore[union-attr]
            if pair in rules.merges:
                rank, _ = rules.merges[pair]
                heapq.heappush(queue, (rank, left, *pair))

    for place in range(last - 1):
        push(place, place + 1)
    while queue:
        _, place, left_id, right_id = heapq.heappop(queue)
        left, next_place = slots[place], after[place]
        right = slots[next_place] if next_place < last else None
        if left is None or right is None or (left.id, right.id) != (left_id, right_id):
            continue
        _, merged_id = rules.merges[left_id, right_id]
        slots[place] = Symbol(merged_id, left.begin, right.end)
        slots[next_place] = None
        after[place] = after[next_place]
        if after[place] < last:
            before[after[place]] = place
        push(before[place], place)
        push(place, after[place])
    return [symbol for symbol in slots if symbol is not None]
