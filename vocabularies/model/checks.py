"""The faults that no vocabulary may have, each found with its place.

Run once, when a Vocabulary is made; everything behind it may rely on what is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from vocabularies.model.byte_alphabet import meant_bytes
from vocabularies.text.motif_pretokenizer import motif_faults

if TYPE_CHECKING:
    from vocabularies.model.vocabulary import Bpe, Characters, Kmers, Vocabulary

__all__ = ["MAX_FINDINGS", "MAX_GROWTH", "TOO_LONG", "find_faults", "growth_of"]

Fault = tuple[str, str]
MAX_FINDINGS = 100
MAX_K = 12
MAX_PIECE_TOKENS = 2**31 - 1
MAX_TEMPLATE = 1_000  # Ids around each of a request's texts, of which there are many.
MAX_CONTENT = 4_096  # Characters of a special token, which every load looks for.
MAX_GROWTH = 256  # Bytes that all normalizers together make of one; 12 in Llama 2's file.
TOO_LONG = f"a text could become more than {MAX_GROWTH} times as long"
MAX_HOLES = 65_536  # A number of some digits must not take the memory of millions of tokens.


def find_faults(vocabulary: Vocabulary) -> Iterator[Fault]:
    """Every fault as (place, message), at most MAX_FINDINGS of them."""
    for count, fault in enumerate(_all_faults(vocabulary)):
        if count == MAX_FINDINGS:
            yield "vocabulary", f"more than {MAX_FINDINGS} faults; the rest is not listed"
            return
        yield fault


def _all_faults(vocabulary: Vocabulary) -> Iterator[Fault]:
    if not vocabulary.tokens:
        yield "tokens", "a vocabulary needs at least one token"
    num_holes = vocabulary.tokens.count(None)
    if num_holes > MAX_HOLES + len(vocabulary.tokens) // 2:
        yield (
            "tokens",
            f"{num_holes} of {len(vocabulary.tokens)} ids mean nothing: that is too many",
        )
    yield from _template_faults(vocabulary)
    yield from _special_faults(vocabulary)
    yield from _step_faults(vocabulary)
    yield from motif_faults(vocabulary)
    match vocabulary.kind:
        case "bpe":
            yield from _bpe_faults(vocabulary, vocabulary.model)  # type: ignore[arg-type]
        case "kmers":
            yield from _kmer_faults(vocabulary, vocabulary.model)  # type: ignore[arg-type]
        case "characters":
            yield from _character_faults(vocabulary, vocabulary.model)  # type: ignore[arg-type]


def _id_fault(vocabulary: Vocabulary, where: str, token_id: int | None) -> Iterator[Fault]:
    if token_id is None:
        return
    if not 0 <= token_id < len(vocabulary.tokens):
        yield where, f"id {token_id} is outside 0..{len(vocabulary.tokens) - 1}"
    elif vocabulary.tokens[token_id] is None:
        yield where, f"id {token_id} means nothing"


def _template_faults(vocabulary: Vocabulary) -> Iterator[Fault]:
    from vocabularies.model.vocabulary import ROLES

    for name in ("prefix", "suffix"):
        if (count := len(getattr(vocabulary, name))) > MAX_TEMPLATE:
            yield name, f"{count} ids; {MAX_TEMPLATE} are possible"
        for i, token_id in enumerate(getattr(vocabulary, name)):
            yield from _id_fault(vocabulary, f"{name}[{i}]", token_id)
    for role, token_id in vocabulary.roles.items():
        if role not in ROLES:
            yield f"roles.{role}", f"unknown role; known are {', '.join(ROLES)}"
        yield from _id_fault(vocabulary, f"roles.{role}", token_id)


def _special_faults(vocabulary: Vocabulary) -> Iterator[Fault]:
    seen: dict[str, int] = {}
    is_byte_level = getattr(vocabulary.model, "byte_level", False)
    for i, token in enumerate(vocabulary.special_tokens):
        where = f"special_tokens[{i}]"
        yield from _id_fault(vocabulary, where, token.id)
        if token.matched and not token.content:
            yield where, "an empty content would be found everywhere"
        if len(token.content) > MAX_CONTENT:
            yield where, f"{len(token.content)} characters; {MAX_CONTENT} are possible"
        if token.content in seen:
            yield where, f"{token.content!r} stands at special_tokens[{seen[token.content]}] too"
        seen.setdefault(token.content, i)
        known = 0 <= token.id < len(vocabulary.tokens) and vocabulary.tokens[token.id]
        meant = meant_bytes(token.content) if is_byte_level else None
        if known and known not in (token.content.encode(), meant):
            yield where, f"id {token.id} stands for {known!r}, not for {token.content!r}"


def _step_faults(vocabulary: Vocabulary) -> Iterator[Fault]:
    from vocabularies.text.normalizers import compile_replacement, normalize
    from vocabularies.text.pretokenizers import pretokenizer

    is_sound, growth = True, 1
    try:
        pretokenizer(vocabulary.pretokenizer)
    except ValueError as error:
        yield "pretokenizer", str(error)
    for i, step in enumerate(vocabulary.normalizers):
        if step.kind in ("replace", "replace_regex"):
            growth *= growth_of(step.pattern if step.kind == "replace" else "x", step.content)
        if growth > MAX_GROWTH:
            yield f"normalizers[{i}]", TOO_LONG
            return
        if step.kind == "replace" and not step.pattern:
            is_sound = False
            yield f"normalizers[{i}]", "an empty pattern would be found everywhere"
        if step.kind == "replace_regex":
            try:
                compile_replacement(step.pattern)
            except ValueError as error:
                is_sound = False
                yield f"normalizers[{i}]", str(error)
    seen: dict[str, int] = {}
    for i, token in enumerate(vocabulary.special_tokens if is_sound else ()):
        if token.matched and token.normalized and token.content:
            left = normalize(token.content, vocabulary.normalizers)[0]
            if not left:
                # The libraries look for what is left of it, and find nothing everywhere, for ever.
                yield f"special_tokens[{i}]", "nothing is left of it after the normalizers"
            elif seen.setdefault(left, i) != i and vocabulary.normalizers:
                # The library finds now one and now the other, by the seed of a hash function.
                message = f"is the same as special_tokens[{seen[left]}] after the normalizers"
                yield f"special_tokens[{i}]", f"{message}: which of them is meant is not said"


def growth_of(literal: str, content: str) -> int:
    """Bytes for one where `content` replaces `literal`; "" may be found between all characters.

    A regular expression that never matches nothing is as bad as a literal of one byte.
    """
    if not literal:
        return 1 + len(content.encode())
    return max(1, -(-len(content.encode()) // len(literal.encode())))


def _bpe_faults(vocabulary: Vocabulary, model: Bpe) -> Iterator[Fault]:
    yield from _id_fault(vocabulary, "model.unknown_id", model.unknown_id)
    tokens = vocabulary.tokens
    special = {token.id for token in vocabulary.special_tokens}
    ordinary = [token for i, token in enumerate(tokens) if token is not None and i not in special]
    if b"" in ordinary or len(set(ordinary)) < len(ordinary):
        yield from _token_faults(tokens, special)
    if not _all_merges_fit(tokens, model.merges):
        yield from _merge_faults(tokens, model.merges)


def _token_faults(tokens: tuple[bytes | None, ...], special: set[int]) -> Iterator[Fault]:
    ordinary: dict[bytes, int] = {}
    for token_id, token in enumerate(tokens):
        if token is None or token_id in special:
            continue
        if not token:
            yield f"tokens[{token_id}]", "an ordinary token cannot be empty"
        elif token in ordinary:
            yield f"tokens[{token_id}]", f"spells {token!r}, as tokens[{ordinary[token]}] does"
        ordinary.setdefault(token, token_id)


def _all_merges_fit(tokens: tuple[bytes | None, ...], merges: tuple[tuple[int, int], ...]) -> bool:
    """Whole arrays at once, a third of the time of the loop that names the faults."""
    if not merges:
        return True
    try:
        pairs = np.fromiter(chain.from_iterable(merges), np.int64, 2 * len(merges))
    except OverflowError:
        return False
    lefts, rights = pairs[::2], pairs[1::2]
    if pairs.min() < 0 or pairs.max() >= len(tokens):
        return False
    in_order = np.sort(lefts * len(tokens) + rights)
    if (in_order[1:] == in_order[:-1]).any():
        return False
    token_of = tokens.__getitem__
    try:
        spelled = map(add, map(token_of, lefts.tolist()), map(token_of, rights.tolist()))
        return set(tokens).issuperset(spelled)
    except TypeError:  # A part that means nothing.
        return False


def _merge_faults(
    tokens: tuple[bytes | None, ...], merges: tuple[tuple[int, int], ...]
) -> Iterator[Fault]:
    known = set(tokens)
    seen: dict[tuple[int, int], int] = {}
    for rank, (left, right) in enumerate(merges):
        if not (0 <= left < len(tokens) and 0 <= right < len(tokens)):
            yield f"merges[{rank}]", f"({left}, {right}) is outside 0..{len(tokens) - 1}"
            continue
        left_token, right_token = tokens[left], tokens[right]
        if left_token is None or right_token is None:
            yield f"merges[{rank}]", f"({left}, {right}) names an id that means nothing"
        elif left_token + right_token not in known:
            yield f"merges[{rank}]", f"{left_token + right_token!r} is not a token"
        if (left, right) in seen:
            yield f"merges[{rank}]", f"({left}, {right}) stands at merges[{seen[left, right]}] too"
        seen.setdefault((left, right), rank)


def _kmer_faults(vocabulary: Vocabulary, model: Kmers) -> Iterator[Fault]:
    if not 1 <= model.k <= MAX_K:
        yield "model.k", f"k is {model.k}; 1 to {MAX_K} are possible"
        return
    letters = model.letters
    if not letters or len(set(letters)) != len(letters) or not letters.isascii():
        yield "model.letters", f"{letters!r} must be different ASCII letters"
    if not 1 <= model.stride <= model.k or (model.frame == "run" and model.stride != model.k):
        yield "model.stride", f"{model.stride} must be 1 to k, and k where the frame is a run"
    if model.max_piece_tokens is not None and not 1 <= model.max_piece_tokens <= MAX_PIECE_TOKENS:
        yield "model.max_piece_tokens", f"must be 1 to {MAX_PIECE_TOKENS}"
    yield from _id_fault(vocabulary, "model.unknown_id", model.unknown_id)
    yield from _id_fault(vocabulary, "model.first_id", model.first_id)
    yield from _id_fault(vocabulary, "model.first_id", model.first_id + len(letters) ** model.k - 1)
    singles = dict(model.letter_ids)
    for letter, token_id in model.letter_ids:
        yield from _id_fault(vocabulary, f"model.letter_ids[{letter!r}]", token_id)
        if len(letter) != 1 or not letter.isascii():
            yield f"model.letter_ids[{letter!r}]", "must be one ASCII letter"
    if model.remainder == "letters" and not set(letters) <= set(singles):
        yield "model.letter_ids", "remainder 'letters' needs an id for every letter"


def _character_faults(vocabulary: Vocabulary, model: Characters) -> Iterator[Fault]:
    yield from _id_fault(vocabulary, "model.unknown_id", model.unknown_id)
    for letter, token_id in model.letter_ids:
        yield from _id_fault(vocabulary, f"model.letter_ids[{letter!r}]", token_id)
        if len(letter) != 1 or (model.unit == "byte" and ord(letter) > 255):
            yield f"model.letter_ids[{letter!r}]", f"must be one {model.unit}"
    if model.unknown_id is None and not (model.unit == "byte" and len(model.letter_ids) == 256):
        yield "model.unknown_id", "is needed where some characters have no id"
