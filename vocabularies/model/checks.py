"""Finds the faults in a vocabulary's fields, each with its place.

The checks run once, when a Vocabulary is created; all other code relies on them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vocabularies.errors import Finding
from vocabularies.model.byte_alphabet import added_token_bytes
from vocabularies.model.types import ROLES, Bpe, Characters, Kmers, VocabularyFields
from vocabularies.preprocessing.motif_pretokenizer import MAX_MOTIF_BYTES, MAX_MOTIFS, MOTIFS
from vocabularies.preprocessing.normalizers import Normalizer, compile_replacement, normalize
from vocabularies.preprocessing.pretokenizers import find_pretokenizer

MAX_FINDINGS = 100
MAX_K = 12
MAX_PIECE_TOKENS = 2**31 - 1
MAX_TEMPLATE = 1_000  # Ids in a prefix or suffix, which every text of a request gets.
MAX_CONTENT = 4_096  # Characters of a special token; every text is searched for it.
MAX_GROWTH = 256  # Bytes that all normalizers together make of one; 12 in Llama 2's file.
TOO_LONG = f"a text could become more than {MAX_GROWTH} times as long"
MAX_HOLES = 65_536  # A short file with one large id must not use the memory of millions of tokens.


def find_faults(vocabulary: VocabularyFields) -> Iterator[Finding]:
    """Yield every fault; after MAX_FINDINGS faults, a last finding says that there are more."""
    for count, fault in enumerate(_all_faults(vocabulary)):
        if count == MAX_FINDINGS:
            yield Finding("vocabulary", f"more than {MAX_FINDINGS} faults; the rest is not listed")
            return
        yield fault


def _all_faults(vocabulary: VocabularyFields) -> Iterator[Finding]:
    if not vocabulary.tokens:
        yield Finding("tokens", "a vocabulary needs at least one token")
    num_holes = vocabulary.tokens.count(None)
    if num_holes > MAX_HOLES + len(vocabulary.tokens) // 2:
        yield Finding(
            "tokens",
            f"{num_holes} of {len(vocabulary.tokens)} ids have no token, which is too many",
        )
    if vocabulary.decoder != "inverse" and not isinstance(vocabulary.model, Bpe):
        yield Finding("decoder", f"{vocabulary.decoder!r} is only possible for BPE")
    yield from _template_faults(vocabulary)
    yield from _special_faults(vocabulary)
    yield from _step_faults(vocabulary)
    yield from _motif_faults(vocabulary)
    match vocabulary.model:
        case Bpe() as model:
            yield from _bpe_faults(vocabulary, model)
        case Kmers() as model:
            yield from _kmer_faults(vocabulary, model)
        case Characters() as model:
            yield from _character_faults(vocabulary, model)


def _id_fault(vocabulary: VocabularyFields, where: str, token_id: int | None) -> Iterator[Finding]:
    if token_id is None:
        return
    if not 0 <= token_id < len(vocabulary.tokens):
        yield Finding(where, f"id {token_id} is outside 0..{len(vocabulary.tokens) - 1}")
    elif vocabulary.tokens[token_id] is None:
        yield Finding(where, f"id {token_id} has no token")


def _template_faults(vocabulary: VocabularyFields) -> Iterator[Finding]:
    for name in ("prefix", "suffix"):
        if (count := len(getattr(vocabulary, name))) > MAX_TEMPLATE:
            yield Finding(name, f"has {count} ids; at most {MAX_TEMPLATE} are possible")
        for i, token_id in enumerate(getattr(vocabulary, name)):
            yield from _id_fault(vocabulary, f"{name}[{i}]", token_id)
    for role, token_id in vocabulary.roles.items():
        if role not in ROLES:
            yield Finding(f"roles.{role}", f"unknown role; known are {', '.join(ROLES)}")
        yield from _id_fault(vocabulary, f"roles.{role}", token_id)


def _special_faults(vocabulary: VocabularyFields) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    is_byte_level = getattr(vocabulary.model, "byte_level", False)
    for i, token in enumerate(vocabulary.special_tokens):
        where = f"special_tokens[{i}]"
        yield from _id_fault(vocabulary, where, token.id)
        if token.matched and not token.content:
            yield Finding(where, "an empty content would match everywhere")
        if len(token.content) > MAX_CONTENT:
            yield Finding(
                where, f"has {len(token.content)} characters; at most {MAX_CONTENT} are possible"
            )
        if token.content in seen:
            yield Finding(where, f"{token.content!r} is also special_tokens[{seen[token.content]}]")
        seen.setdefault(token.content, i)
        known = 0 <= token.id < len(vocabulary.tokens) and vocabulary.tokens[token.id]
        meant = added_token_bytes(token.content) if is_byte_level else None
        if known and known not in (token.content.encode(), meant):
            yield Finding(where, f"id {token.id} belongs to {known!r}, not to {token.content!r}")


def _step_faults(vocabulary: VocabularyFields) -> Iterator[Finding]:
    is_sound, growth = True, 1
    try:
        find_pretokenizer(vocabulary.pretokenizer)
    except ValueError as error:
        yield Finding("pretokenizer", str(error))
    for i, step in enumerate(vocabulary.normalizers):
        if step.kind in ("replace", "replace_regex"):
            growth *= max_growth(step.pattern if step.kind == "replace" else "x", step.content)
        if growth > MAX_GROWTH:
            yield Finding(f"normalizers[{i}]", TOO_LONG)
            return
        if step.kind == "replace" and not step.pattern:
            is_sound = False
            yield Finding(f"normalizers[{i}]", "an empty pattern would match everywhere")
        if step.kind == "replace_regex":
            try:
                compile_replacement(step.pattern)
            except ValueError as error:
                is_sound = False
                yield Finding(f"normalizers[{i}]", str(error))
    seen: dict[str, int] = {}
    for i, token in enumerate(vocabulary.special_tokens if is_sound else ()):
        if token.matched and token.normalized and token.content:
            normalized, _ = normalize(token.content, vocabulary.normalizers)
            if not normalized:
                # The libraries then search for the empty string, match everywhere and never end.
                yield Finding(f"special_tokens[{i}]", "the normalizers remove all of it")
            elif seen.setdefault(normalized, i) != i and vocabulary.normalizers:
                # The library finds one or the other, by the seed of a hash function.
                message = f"is the same as special_tokens[{seen[normalized]}] after the normalizers"
                yield Finding(f"special_tokens[{i}]", f"{message}, so its id is ambiguous")


def max_growth(literal: str, content: str) -> int:
    """Return the largest number of bytes per input byte when `content` replaces `literal`.

    An empty literal matches between all characters. Replacing the matches of a regular expression
    that matches at least one character grows a text at most as much as replacing a literal of one
    byte.
    """
    if not literal:
        return 1 + len(content.encode())
    return max(1, -(-len(content.encode()) // len(literal.encode())))


def _bpe_faults(vocabulary: VocabularyFields, model: Bpe) -> Iterator[Finding]:
    yield from _id_fault(vocabulary, "model.unknown_id", model.unknown_id)
    tokens = vocabulary.tokens
    special = {token.id for token in vocabulary.special_tokens}
    ordinary = [token for i, token in enumerate(tokens) if token is not None and i not in special]
    if b"" in ordinary or len(set(ordinary)) < len(ordinary):
        yield from _token_faults(tokens, special)
    if not _all_merges_fit(vocabulary):
        yield from _merge_faults(tokens, model.merges)


def _token_faults(tokens: tuple[bytes | None, ...], special: set[int]) -> Iterator[Finding]:
    ordinary: dict[bytes, int] = {}
    for token_id, token in enumerate(tokens):
        if token is None or token_id in special:
            continue
        if not token:
            yield Finding(f"tokens[{token_id}]", "an ordinary token cannot be empty")
        elif token in ordinary:
            yield Finding(
                f"tokens[{token_id}]", f"has the same bytes {token!r} as tokens[{ordinary[token]}]"
            )
        ordinary.setdefault(token, token_id)


def _all_merges_fit(vocabulary: VocabularyFields) -> bool:
    """Return whether no merge has a fault; faster than the loop that names the faults."""
    try:
        pairs = vocabulary.merge_pairs.astype(np.int64)
    except OverflowError:
        return False
    if not len(pairs):
        return True
    tokens, lefts, rights = vocabulary.tokens, pairs[:, 0], pairs[:, 1]
    if pairs.min() < 0 or pairs.max() >= len(tokens):
        return False
    in_order = np.sort(lefts * len(tokens) + rights)
    if (in_order[1:] == in_order[:-1]).any():
        return False
    try:
        _ = vocabulary.merged_ids
    except (LookupError, TypeError):
        return False
    return True


def _merge_faults(
    tokens: tuple[bytes | None, ...], merges: tuple[tuple[int, int], ...]
) -> Iterator[Finding]:
    known = set(tokens)
    seen: dict[tuple[int, int], int] = {}
    for rank, (left, right) in enumerate(merges):
        if not (0 <= left < len(tokens) and 0 <= right < len(tokens)):
            yield Finding(f"merges[{rank}]", f"({left}, {right}) is outside 0..{len(tokens) - 1}")
            continue
        left_token, right_token = tokens[left], tokens[right]
        if left_token is None or right_token is None:
            yield Finding(f"merges[{rank}]", f"({left}, {right}) contains an id that has no token")
        elif left_token + right_token not in known:
            yield Finding(f"merges[{rank}]", f"{left_token + right_token!r} is not a token")
        if (left, right) in seen:
            yield Finding(
                f"merges[{rank}]", f"({left}, {right}) is also merges[{seen[left, right]}]"
            )
        seen.setdefault((left, right), rank)


def _kmer_faults(vocabulary: VocabularyFields, model: Kmers) -> Iterator[Finding]:
    if not 1 <= model.k <= MAX_K:
        yield Finding("model.k", f"k is {model.k}; it must be 1 to {MAX_K}")
        return
    letters = model.letters
    if not letters or len(set(letters)) != len(letters) or not letters.isascii():
        yield Finding("model.letters", f"{letters!r} must be different ASCII letters")
    if not 1 <= model.stride <= model.k or (model.frame == "run" and model.stride != model.k):
        yield Finding(
            "model.stride", f"is {model.stride}; it must be 1 to k, and k if the frame is a run"
        )
    if model.max_piece_tokens is not None and not 1 <= model.max_piece_tokens <= MAX_PIECE_TOKENS:
        yield Finding("model.max_piece_tokens", f"must be 1 to {MAX_PIECE_TOKENS}")
    yield from _id_fault(vocabulary, "model.unknown_id", model.unknown_id)
    yield from _id_fault(vocabulary, "model.first_id", model.first_id)
    yield from _id_fault(vocabulary, "model.first_id", model.first_id + len(letters) ** model.k - 1)
    singles = dict(model.letter_ids)
    for letter, token_id in model.letter_ids:
        yield from _id_fault(vocabulary, f"model.letter_ids[{letter!r}]", token_id)
        if len(letter) != 1 or not letter.isascii():
            yield Finding(f"model.letter_ids[{letter!r}]", "must be one ASCII letter")
    if model.remainder == "letters" and not set(letters) <= set(singles):
        yield Finding("model.letter_ids", "remainder 'letters' needs an id for every letter")


def _character_faults(vocabulary: VocabularyFields, model: Characters) -> Iterator[Finding]:
    yield from _id_fault(vocabulary, "model.unknown_id", model.unknown_id)
    for letter, token_id in model.letter_ids:
        yield from _id_fault(vocabulary, f"model.letter_ids[{letter!r}]", token_id)
        if len(letter) != 1 or (model.unit == "byte" and ord(letter) > 255):
            yield Finding(f"model.letter_ids[{letter!r}]", f"must be one {model.unit}")
    if model.unknown_id is None and not (model.unit == "byte" and len(model.letter_ids) == 256):
        yield Finding("model.unknown_id", "is required if some characters have no id")


def _motif_faults(vocabulary: VocabularyFields) -> Iterator[Finding]:
    """Yield every fault of the motifs; a place has the motif's number in the order of the input."""
    motifs = vocabulary.motifs
    if vocabulary.pretokenizer != MOTIFS:
        if motifs:
            rule = f"the pretokenizer {vocabulary.pretokenizer}"
            yield Finding("motifs", f"{rule} does not cut motifs; {MOTIFS!r} does")
        return
    if not isinstance(vocabulary.model, Bpe):
        yield Finding(
            "pretokenizer",
            f"a vocabulary of kind {vocabulary.kind} cannot cut motifs; only BPE can",
        )
    elif not vocabulary.model.ignore_merges:
        message = "must be true, so that a motif is its own token whatever the merges give"
        yield Finding("model.ignore_merges", message)
    if not motifs:
        yield Finding("motifs", f"the pretokenizer {MOTIFS!r} needs at least one motif")
    if len(motifs) > MAX_MOTIFS:
        yield Finding("motifs", f"has {len(motifs)} motifs; at most {MAX_MOTIFS} are possible")
    yield from _each_motif(vocabulary)


def _each_motif(vocabulary: VocabularyFields) -> Iterator[Finding]:
    special_ids = {token.id for token in vocabulary.special_tokens}
    contents = {token.content for token in vocabulary.special_tokens}
    ordinary = {t for i, t in enumerate(vocabulary.tokens) if t and i not in special_ids}
    seen: dict[str, int] = {}
    never = _removed_letters(vocabulary.normalizers)
    for i, motif in enumerate(vocabulary.motifs):
        where, encoded = f"motifs[{i}]", motif.encode()
        lost = sorted(never & {*motif})
        if not motif:
            yield Finding(where, "an empty motif would match everywhere")
        elif motif in seen:
            yield Finding(where, f"{motif!r} is also motifs[{seen[motif]}]")
        elif len(encoded) > MAX_MOTIF_BYTES:
            yield Finding(where, f"has {len(encoded)} bytes; a motif has at most {MAX_MOTIF_BYTES}")
        elif motif in contents:
            yield Finding(where, f"{motif!r} is a special token, which is found before any motif")
        elif encoded not in ordinary:
            yield Finding(where, f"{motif!r} is not a token")
        elif lost:
            letters = ", ".join(map(repr, lost))
            yield Finding(where, f"{motif!r} is never found: the normalizers leave no {letters}")
        seen.setdefault(motif, i)


def _removed_letters(steps: tuple[Normalizer, ...]) -> set[str]:
    """Find the ASCII letters that no normalized text contains."""
    gone: set[str] = set()
    for step in steps:
        if step.kind == "lowercase":
            gone |= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        elif step.kind == "replace":
            if len(step.pattern) == 1 and step.pattern.isascii():
                gone.add(step.pattern)
            gone -= {*step.content}
        elif step.kind == "replace_regex":
            gone -= {*step.content}
        elif step.kind == "nfc":
            gone -= {*"K;`"}  # Some characters become ASCII ones in NFC.
    return gone
