"""What an unknown DNA tokenizer does: an id for each letter, words of k letters, or neither.

Probes it with letters, pairs, words and random sequences; whatever does not come out as its tables
say leaves the tokenizer as it is ("upstream"), with the reason. Knows neither devices nor torch.

Source: Niktab and Patel, DNATok, Algorithm 1. Two things differ: a byte without an id of its own
sends its row to the tokenizer instead of becoming N, and case is kept as the tokenizer keeps it,
so that the ids are the tokenizer's on every input and not only on A, C, G, T and N.
"""

from __future__ import annotations

import itertools
import logging
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.embedding.letter_rule import ELSEWHERE, LetterRule, letter_rule
from gpu.embedding.probe_texts import (
    DNA,
    SELF_TEST,
    known_strings,
    random_text,
    short_tests,
    string_tests,
)
from gpu.embedding.tokenizer_json import pattern_fault
from gpu.embedding.upstream_tokenizer import (
    EncodeBatch,
    Engine,
    first_number,
    special_tokens,
    upstream_encoder,
)
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

__all__ = ["SELF_TEST", "Discovery", "discover"]

FIXED = {"A": 1, "C": 2, "G": 3, "T": 4, "N": 0}
"""Ids where an embedder has no tokenizer; every other byte is 0, lower case as upper case."""

MAX_K = 8  # 65,536 words are encoded to learn their ids.
LONG = (1 << 17) + 1  # Letters; a tokenizer that cuts off what is too long shows it.
MAX_TOKEN_LEN = 1 << 24  # Some libraries write 10**30 for "no limit".
_ASCII = [chr(byte) for byte in range(128)]
_LETTERS = [character for character in _ASCII if character.isalpha()]
_PAD_TOKENS = ("[PAD]", "<pad>", "<PAD>", "<|padding|>")
_PAD_FIELDS = ("pad_token_id", "pad_id", "padding_idx", "config.pad_token_id")
_LENGTH_FIELDS = ("token_len", "max_length", "max_seq_len", "max_seq_length", "max_len")
_CONFIG_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_length")
_TOKENIZER_FIELDS = ("tokenizer", "tok", "_tokenizer", "model.tokenizer")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Discovery:
    """What was found out about a tokenizer.

    Attributes:
        rule: how ids are looked up; None: only `upstream` gives them.
        upstream: asks the tokenizer itself; None: there is none, and `rule` is all.
        pad_id: id of the padding on the left.
        unknown_id: id of N; None where N has none of its own.
        token_len: length to which rows are padded, at least; None: that of the longest.
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
        """Whether ids are looked up, so that only rows that need it go to the tokenizer."""
        return self.rule is not None


def discover(
    source: Any, *, engine: Engine | None = None, token_len: int | None = None
) -> Discovery:
    """What a tokenizer does with sequences, so that their ids can be looked up without it.

    Args:
        source: an embedder, which has `embed_tokens` and perhaps a `tokenizer`; or a tokenizer: a
            Vocabulary, a `tokenizers.Tokenizer`, one in the manner of `transformers`, or any
            object with `encode(text)`.
        engine: encodes for a Vocabulary instead of the reference.
        token_len: the length to pad to, instead of the embedder's own.

    Raises:
        TypeError: the source is neither, or token_len no whole number.
        ValueError: token_len is below 1.
    """
    if source is None or isinstance(source, str | bytes | type):
        shown = f"the class {source.__name__}" if isinstance(source, type) else repr(source)
        raise TypeError(f"{shown} is neither an embedder nor a tokenizer")
    if token_len is not None and (token_len := operator.index(token_len)) < 1:
        raise ValueError(f"token_len is {token_len}; it must be at least 1")
    embedder = source if hasattr(source, "embed_tokens") else None
    tokenizer = source if embedder is None else _tokenizer_of(embedder)
    token_len = _token_len(embedder) if token_len is None else token_len
    pad_id = _pad_id(embedder, tokenizer)
    if tokenizer is None:
        reason = "no tokenizer: A C G T N are 1 2 3 4 0"
        return Discovery(_fixed_rule(), None, pad_id, 0, token_len, reason)
    upstream = upstream_encoder(tokenizer, engine)
    rule, reason = _rule_of(tokenizer, upstream)
    if rule is None:
        name = type(tokenizer).__name__
        _log.warning("ids come from the upstream tokenizer (%s), slowly: %s", name, reason)
    unknown_id = _single_ids(upstream, ["N"])[0]
    return Discovery(
        rule=rule,
        upstream=upstream,
        pad_id=pad_id,
        unknown_id=None if unknown_id == ELSEWHERE else unknown_id,
        token_len=token_len,
        reason=reason,
    )


def _rule_of(tokenizer: Any, upstream: EncodeBatch) -> tuple[LetterRule | None, str]:
    if isinstance(tokenizer, Vocabulary):
        own = letter_rule(tokenizer)
        if isinstance(own, str):
            return None, own
        fault = _fault(own, upstream, tokenizer)
        return (None, fault) if fault else (own, f"the rule of a {tokenizer.kind} vocabulary")
    fault, specials = "", special_tokens(tokenizer)
    words = _find_words(upstream)
    if words is not None:
        fault = _words_fault(words, specials or ()) or _fault(words, upstream, tokenizer)
        named = f"words of {words.k} letters, one every {words.stride}"
        return (None, fault) if fault else (words, named)
    # A tokenizer that does not say its special tokens may have any that is not of letters alone.
    for characters in (_LETTERS,) if specials is None else (_ASCII, _LETTERS):
        found = _find_characters(upstream, characters, specials or ())
        fault = _fault(found, upstream, tokenizer)
        if not fault:
            return found, f"an id for each of {int((found.codes >= 0).sum())} characters"
    return None, fault


def _ask(upstream: EncodeBatch, texts: Sequence[str]) -> list[NDArray[np.int32] | None]:
    """The ids of each text; None for one that the tokenizer raises an error for."""
    try:
        ids, offsets = upstream(Batch(texts))
    except Exception:  # Foreign code: some raise KeyError for a letter they do not know.
        if len(texts) == 1:
            return [None]
        return [row for text in texts for row in _ask(upstream, [text])]
    return [ids[begin:end] for begin, end in itertools.pairwise(offsets)]


def _single_ids(upstream: EncodeBatch, texts: Sequence[str]) -> list[int]:
    """The id of each text that gives exactly one, ELSEWHERE for the others."""
    rows = _ask(upstream, texts)
    return [ELSEWHERE if row is None or len(row) != 1 else int(row[0]) for row in rows]


def _find_characters(
    upstream: EncodeBatch, characters: Sequence[str], specials: Sequence[str]
) -> LetterRule:
    """The ids of single characters, where each alone gives one.

    One character of each special token stays without, so that a row which may hold the token goes
    to the tokenizer.
    """
    codes = np.full(256, ELSEWHERE, np.int32)
    codes[[ord(character) for character in characters]] = _single_ids(upstream, characters)
    for content in filter(None, specials):
        mark = next((c for c in content if not c.isalnum()), content[0])
        if mark.isalnum() and mark.isascii():  # Or a normalizer may write it for another letter.
            codes[codes == codes[ord(mark)]] = ELSEWHERE
        codes[[*mark.lower().encode(), *mark.upper().encode()]] = ELSEWHERE
    return LetterRule(codes)


def _find_words(upstream: EncodeBatch) -> LetterRule | None:
    """The rule of words of k letters, side by side or one at every letter.

    None where a long sequence does not give as many ids as either would.
    """
    length = 5 * math.lcm(*range(1, MAX_K + 1))  # A whole number of words, whatever k.
    (row,) = _ask(upstream, [random_text(DNA, length, 0)])
    num_ids = 0 if row is None else len(row)
    if num_ids and length % num_ids == 0 and 2 <= length // num_ids <= MAX_K:
        k = stride = length // num_ids
    elif 2 <= length - num_ids + 1 <= MAX_K:
        k, stride = length - num_ids + 1, 1
    else:
        return None
    codes = np.full(256, ELSEWHERE, np.int32)
    codes[[ord(letter) for letter in DNA]] = range(len(DNA))
    words = list(map("".join, itertools.product(DNA, repeat=k)))
    # The last entry is never looked up: a letter that makes a word unknown has no code.
    word_ids = np.array([*_single_ids(upstream, words), ELSEWHERE], np.int32)
    letter_ids = None
    if stride == k and min(single := _single_ids(upstream, DNA)) != ELSEWHERE:
        letter_ids = np.full(256, ELSEWHERE, np.int32)
        letter_ids[[ord(letter) for letter in DNA]] = single
    return LetterRule(codes, k, stride, len(DNA), word_ids, letter_ids)


def _words_fault(rule: LetterRule, specials: Sequence[str]) -> str:
    """What sequences of few letters would not show: a word without an id, a token of bases."""
    assert rule.word_ids is not None
    words = map("".join, itertools.product(DNA, repeat=rule.k))
    for word, word_id in zip(words, rule.word_ids[:-1], strict=True):
        if word_id == ELSEWHERE:
            return f"{word!r} alone does not give one id"
    for content in filter(None, specials):
        if set(content.upper()) <= set(DNA):
            return f"the token {content!r} may be in any sequence"
    return ""


def _fault(rule: LetterRule, upstream: EncodeBatch, tokenizer: Any) -> str:
    """What is wrong with a rule: a base without a code, or a text with other ids upstream.

    Short texts come first: what merges letters shows in them, and takes long for others. That no
    test is missing for what takes several letters at once rests on what the tokenizer says of its
    patterns and its vocabulary; of one that says neither, the tests are all that is known.
    """
    missing = [letter for letter in DNA if rule.codes[ord(letter)] == ELSEWHERE]
    if missing:
        return f"{missing[0]!r} alone does not give one id"
    if fault := _difference(rule, upstream, short_tests(rule)):
        return fault
    if not isinstance(tokenizer, Vocabulary):  # Its rule is read off, not found out.
        if fault := pattern_fault(tokenizer):
            return fault
        for texts in string_tests(rule, known_strings(tokenizer)):
            if fault := _difference(rule, upstream, texts):
                return fault
    return _difference(rule, upstream, [random_text(DNA, LONG, LONG)])


def _difference(rule: LetterRule, upstream: EncodeBatch, texts: Sequence[str]) -> str:
    """The first text that has other ids upstream; "" where none has."""
    looked_up = [(text, rule.ids(np.frombuffer(text.encode(), np.uint8))) for text in texts]
    tests = [(text, found) for text, found in looked_up if found is not None]
    for (text, found), ids in zip(tests, _ask(upstream, [text for text, _ in tests]), strict=True):
        if ids is None or not np.array_equal(found, ids):
            shown = text if len(text) <= 40 else text[:40] + "..."
            given = "an error" if ids is None else f"ids {ids[:10].tolist()}"
            return f"{shown!r} is not its letters' ids: upstream gives {given}"
    return ""


def _fixed_rule() -> LetterRule:
    codes: NDArray[np.int32] = np.zeros(256, np.int32)
    for letter, token_id in FIXED.items():
        codes[[ord(letter), ord(letter.lower())]] = token_id
    return LetterRule(codes)


def _tokenizer_of(embedder: Any) -> Any:
    for name in _TOKENIZER_FIELDS:
        found = embedder
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None:
            # A wrapper around a tokenizer that has no encode of its own.
            inner = getattr(found, "tokenizer", None)
            return found if hasattr(found, "encode") or inner is None else inner
    return None


def _pad_id(embedder: Any, tokenizer: Any) -> int:
    if isinstance(tokenizer, Vocabulary):
        return tokenizer.roles.get("pad", 0)
    places = [(thing, name) for thing in (tokenizer, embedder) for name in _PAD_FIELDS]
    found = first_number(places, 0, 2**31 - 1)
    if found is not None:
        return found
    padding = getattr(tokenizer, "padding", None)
    if isinstance(padding, dict) and "pad_id" in padding:
        return int(padding["pad_id"])
    to_id: Any = getattr(tokenizer, "token_to_id", None)
    for token in _PAD_TOKENS if callable(to_id) else ():
        token_id = to_id(token)
        if isinstance(token_id, int):
            return token_id
    return 0


def _token_len(embedder: Any) -> int | None:
    """The embedder's fixed length, if it says one."""
    places = [(embedder, name) for name in _LENGTH_FIELDS]
    places += [(embedder, f"config.{name}") for name in _CONFIG_FIELDS]
    return first_number(places, 1, MAX_TOKEN_LEN)
