"""Finds out whether a DNA tokenizer has an id for each letter, or for each word of k letters.

`discover` encodes letters, pairs, words and random sequences. Where any result differs from the
tables, the upstream tokenizer stays in charge and `Discovery.reason` says why. This module uses
neither devices nor torch.

Source: Niktab and Patel, DNATok, Algorithm 1, with two differences: a byte without an id of its own
sends its row to the tokenizer instead of becoming N, and lower case has the ids that the tokenizer
gives it. So ids equal the tokenizer's on every input, not only on A, C, G, T and N.
"""

from __future__ import annotations

import itertools
import logging
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.embedding.letter_rule import NEEDS_UPSTREAM, LetterRule, read_letter_rule
from gpu.embedding.probe_texts import (
    DNA,
    list_vocabulary_strings,
    make_random_text,
    make_short_texts,
    make_string_texts,
)
from gpu.embedding.tokenizer_json import find_pattern_fault
from gpu.embedding.upstream_tokenizer import (
    MAX_ID,
    EncodeBatch,
    Engine,
    find_attribute,
    find_number,
    list_special_tokens,
    make_upstream_encoder,
)
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

DEFAULT_IDS = {"A": 1, "C": 2, "G": 3, "T": 4, "N": 0}
"""Ids of letters, in either case, where an embedder has no tokenizer; every other byte is 0."""

MAX_K = 8
"""Letters of the longest words that are looked for; 4**8 words are encoded to learn their ids."""

LONG = (1 << 17) + 1
"""Letters of the longest test, which shows a tokenizer that truncates."""

MAX_TOKEN_LEN = 1 << 24
"""The largest length that is taken for one; some libraries write 10**30 for "no limit"."""

_ASCII = [chr(byte) for byte in range(128)]
_LETTERS = [character for character in _ASCII if character.isalpha()]
_PAD_TOKENS = ("[PAD]", "<pad>", "<PAD>", "<|padding|>")
_PAD_FIELDS = ("pad_token_id", "pad_id", "padding_idx", "config.pad_token_id")
_LENGTH_FIELDS = (
    "token_len",
    "max_length",
    "max_seq_len",
    "max_seq_length",
    "max_len",
    "config.max_position_embeddings",
    "config.n_positions",
    "config.max_seq_len",
    "config.max_length",
)
_TOKENIZER_FIELDS = ("tokenizer", "tok", "_tokenizer", "model.tokenizer")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Discovery:
    """Holds what was found out about a tokenizer.

    Attributes:
        rule: the tables in which ids are looked up; None: only `upstream` gives ids.
        upstream: encodes by the tokenizer; None: there is no tokenizer, and `rule` gives all ids.
        pad_id: the id of the padding on the left.
        unknown_id: the id of N; None where N has no id of its own.
        token_len: the least number of ids to which rows are padded; None: that of the longest row.
        reason: what was found, or why there is no rule, in words.
    """

    rule: LetterRule | None
    upstream: EncodeBatch | None
    pad_id: int
    unknown_id: int | None
    token_len: int | None
    reason: str

    @property
    def use_ids_path(self) -> bool:
        """Whether ids are looked up, so that the tokenizer only encodes rows that need it."""
        return self.rule is not None


def discover(
    source: Any, *, engine: Engine | None = None, token_len: int | None = None
) -> Discovery:
    """Find out which ids a tokenizer gives, so that they can be looked up without it.

    Args:
        source: an embedder, which has `embed_tokens` and perhaps a `tokenizer`; or a tokenizer: a
            Vocabulary, a `tokenizers.Tokenizer`, a tokenizer with the interface of `transformers`,
            or any object with `encode(text)`.
        engine: encodes for a Vocabulary instead of the reference.
        token_len: the number of ids to pad to, instead of the embedder's own.

    Raises:
        TypeError: the source is neither an embedder nor a tokenizer, or token_len is no integer.
        ValueError: token_len is below 1.
    """
    if source is None or isinstance(source, str | bytes | type):
        shown = f"the class {source.__name__}" if isinstance(source, type) else repr(source)
        raise TypeError(f"{shown} is neither an embedder nor a tokenizer")
    if token_len is not None and (token_len := operator.index(token_len)) < 1:
        raise ValueError(f"token_len is {token_len}; it must be at least 1")
    embedder = source if hasattr(source, "embed_tokens") else None
    tokenizer = source if embedder is None else _find_tokenizer(embedder)
    token_len = _find_token_len(embedder) if token_len is None else token_len
    pad_id = _find_pad_id(embedder, tokenizer)
    if tokenizer is None:
        reason = "no tokenizer: A C G T N are 1 2 3 4 0"
        return Discovery(
            rule=_make_default_rule(),
            upstream=None,
            pad_id=pad_id,
            unknown_id=0,
            token_len=token_len,
            reason=reason,
        )
    upstream = make_upstream_encoder(tokenizer, engine)
    finding = _find_rule(tokenizer, upstream)
    if finding.rule is None:
        name = type(tokenizer).__name__
        _log.warning("ids come from the upstream tokenizer (%s), slowly: %s", name, finding.reason)
    unknown_id = _encode_singles(upstream, ["N"])[0]
    return Discovery(
        rule=finding.rule,
        upstream=upstream,
        pad_id=pad_id,
        unknown_id=None if unknown_id == NEEDS_UPSTREAM else unknown_id,
        token_len=token_len,
        reason=finding.reason,
    )


class _Finding(NamedTuple):
    """Holds a rule and where it comes from, or None and why there is no rule."""

    rule: LetterRule | None
    reason: str


def _find_rule(tokenizer: Any, upstream: EncodeBatch) -> _Finding:
    """Find the rule of a tokenizer: its own tables, words of k letters, or single characters."""
    if isinstance(tokenizer, Vocabulary):
        own = read_letter_rule(tokenizer)
        if isinstance(own, str):
            return _Finding(None, own)
        fault = _find_fault(own, upstream, tokenizer)
        return _decide(own, fault, f"the rule of a {tokenizer.kind} vocabulary")
    specials = list_special_tokens(tokenizer)
    words = _find_words(upstream)
    if words is not None:
        fault = _find_word_fault(words, specials or ()) or _find_fault(words, upstream, tokenizer)
        return _decide(words, fault, f"words of {words.k} letters, one every {words.stride}")
    # Where special tokens are not listed, any sign may belong to one, so only letters get codes.
    fault = ""
    for characters in (_LETTERS,) if specials is None else (_ASCII, _LETTERS):
        rule = _find_characters(upstream, characters, specials or ())
        fault = _find_fault(rule, upstream, tokenizer)
        if not fault:
            num_codes = int((rule.codes >= 0).sum())
            return _Finding(rule, f"an id for each of {num_codes} characters")
    return _Finding(None, fault)


def _decide(rule: LetterRule, fault: str, reason: str) -> _Finding:
    """Take a rule for that reason, unless it has a fault."""
    return _Finding(None, fault) if fault else _Finding(rule, reason)


def _encode_each(upstream: EncodeBatch, texts: Sequence[str]) -> list[NDArray[np.int32] | None]:
    """Encode each text, int32[T]; None where the tokenizer raises an error for it."""
    try:
        ids, offsets = upstream(Batch(texts))
    except Exception:  # Foreign code; some raise KeyError for an unknown letter.
        if len(texts) == 1:
            return [None]
        return [row for text in texts for row in _encode_each(upstream, [text])]
    return [ids[begin:end] for begin, end in itertools.pairwise(offsets)]


def _encode_singles(upstream: EncodeBatch, texts: Sequence[str]) -> list[int]:
    """Encode texts that may give exactly one id; NEEDS_UPSTREAM where one gives another number."""
    rows = _encode_each(upstream, texts)
    return [NEEDS_UPSTREAM if row is None or len(row) != 1 else int(row[0]) for row in rows]


def _find_characters(
    upstream: EncodeBatch, characters: Sequence[str], specials: Sequence[str]
) -> LetterRule:
    """Find the ids of single characters.

    A character that does not give exactly one id has no code. One character of each special token
    has none either, so that the tokenizer encodes every row that may hold the token.
    """
    codes = np.full(256, NEEDS_UPSTREAM, np.int32)
    codes[[ord(character) for character in characters]] = _encode_singles(upstream, characters)
    for content in filter(None, specials):
        mark = next((c for c in content if not c.isalnum()), content[0])
        if mark.isalnum() and mark.isascii():  # A normalizer may turn other letters into it.
            codes[codes == codes[ord(mark)]] = NEEDS_UPSTREAM
        codes[[*mark.lower().encode(), *mark.upper().encode()]] = NEEDS_UPSTREAM
    return LetterRule(codes)


def _find_words(upstream: EncodeBatch) -> LetterRule | None:
    """Find the rule of words of k letters, side by side or one at every letter.

    None where the number of ids of a long sequence fits neither.
    """
    length = 5 * math.lcm(*range(1, MAX_K + 1))  # Divisible by every k.
    (row,) = _encode_each(upstream, [make_random_text(DNA, length, 0)])
    num_ids = 0 if row is None else len(row)
    if num_ids and length % num_ids == 0 and 2 <= length // num_ids <= MAX_K:
        k = stride = length // num_ids
    elif 2 <= length - num_ids + 1 <= MAX_K:
        k, stride = length - num_ids + 1, 1
    else:
        return None
    codes = np.full(256, NEEDS_UPSTREAM, np.int32)
    codes[[ord(letter) for letter in DNA]] = range(len(DNA))
    words = list(map("".join, itertools.product(DNA, repeat=k)))
    # The last entry, that of unknown words, is never looked up: only A, C, G and T have codes.
    word_ids = np.array([*_encode_singles(upstream, words), NEEDS_UPSTREAM], np.int32)
    letter_ids = None
    if stride == k and min(single := _encode_singles(upstream, DNA)) != NEEDS_UPSTREAM:
        letter_ids = np.full(256, NEEDS_UPSTREAM, np.int32)
        letter_ids[[ord(letter) for letter in DNA]] = single
    return LetterRule(codes, k, stride, len(DNA), word_ids, letter_ids)


def _find_word_fault(rule: LetterRule, specials: Sequence[str]) -> str:
    """Find a word without an id, or a special token of bases; "" where there is neither."""
    assert rule.word_ids is not None
    words = map("".join, itertools.product(DNA, repeat=rule.k))
    for word, word_id in zip(words, rule.word_ids[:-1], strict=True):
        if word_id == NEEDS_UPSTREAM:
            return f"{word!r} alone does not give one id"
    for content in filter(None, specials):
        if set(content.upper()) <= set(DNA):
            return f"the token {content!r} may be in any sequence"
    return ""


def _find_fault(rule: LetterRule, upstream: EncodeBatch, tokenizer: Any) -> str:
    """Find a base without a code, or a text with other ids upstream; "" where there is neither.

    Short texts come first: they show a tokenizer that merges, which is slow on long ones. Steps
    that take several letters at once are found by the patterns and the strings that the tokenizer
    lists; where it lists none, only the texts of `make_short_texts` test it.
    """
    missing = [letter for letter in DNA if rule.codes[ord(letter)] == NEEDS_UPSTREAM]
    if missing:
        return f"{missing[0]!r} alone does not give one id"
    if fault := _find_difference(rule, upstream, make_short_texts(rule)):
        return fault
    if not isinstance(tokenizer, Vocabulary):  # Its rule was read, not found by tests.
        if fault := find_pattern_fault(tokenizer):
            return fault
        for texts in make_string_texts(rule, list_vocabulary_strings(tokenizer)):
            if fault := _find_difference(rule, upstream, texts):
                return fault
    return _find_difference(rule, upstream, [make_random_text(DNA, LONG, LONG)])


def _find_difference(rule: LetterRule, upstream: EncodeBatch, texts: Sequence[str]) -> str:
    """Find the first text that has other ids upstream, and say which; "" where there is none."""
    expected: dict[str, NDArray[np.int32]] = {}
    for text in texts:
        ids_of_rule = rule.encode(np.frombuffer(text.encode(), np.uint8))
        if ids_of_rule is not None:
            expected[text] = ids_of_rule
    for text, ids in zip(expected, _encode_each(upstream, list(expected)), strict=True):
        if ids is None or not np.array_equal(expected[text], ids):
            shown = text if len(text) <= 40 else text[:40] + "..."
            given = "an error" if ids is None else f"ids {ids[:10].tolist()}"
            return f"{shown!r} is not its letters' ids: upstream gives {given}"
    return ""


def _make_default_rule() -> LetterRule:
    """Make the rule of DEFAULT_IDS."""
    codes: NDArray[np.int32] = np.zeros(256, np.int32)
    for letter, token_id in DEFAULT_IDS.items():
        codes[[ord(letter), ord(letter.lower())]] = token_id
    return LetterRule(codes)


def _find_tokenizer(embedder: Any) -> Any:
    """Find the tokenizer of an embedder; None where it has none."""
    for name in _TOKENIZER_FIELDS:
        tokenizer = find_attribute(embedder, name)
        if tokenizer is not None:
            # A wrapper without an `encode` of its own holds the tokenizer.
            inner = getattr(tokenizer, "tokenizer", None)
            return tokenizer if hasattr(tokenizer, "encode") or inner is None else inner
    return None


def _find_pad_id(embedder: Any, tokenizer: Any) -> int:
    """Find the id of the padding; 0 where neither the tokenizer nor the embedder has one."""
    if isinstance(tokenizer, Vocabulary):
        return tokenizer.roles.get("pad", 0)
    for source in (tokenizer, embedder):
        pad_id = find_number(source, _PAD_FIELDS, 0, MAX_ID)
        if pad_id is not None:
            return pad_id
    padding = getattr(tokenizer, "padding", None)
    if isinstance(padding, dict) and "pad_id" in padding:
        return int(padding["pad_id"])
    token_to_id: Any = getattr(tokenizer, "token_to_id", None)
    for token in _PAD_TOKENS if callable(token_to_id) else ():
        token_id = token_to_id(token)
        if isinstance(token_id, int):
            return token_id
    return 0


def _find_token_len(embedder: Any) -> int | None:
    """Find the fixed length of an embedder; None where it has none."""
    return find_number(embedder, _LENGTH_FIELDS, 1, MAX_TOKEN_LEN)
