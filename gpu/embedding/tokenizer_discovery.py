"""Finds out whether a DNA tokenizer has an id for each letter, or for each word of k letters.

`discover` encodes letters, pairs, words and random sequences. Where any result differs from the
tables, the upstream tokenizer encodes, and `Discovery.reason` says why. This module uses
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.embedding.discovery.begin_end_tokens import find_begin_end_tokens, read_begin_end_tokens
from gpu.embedding.discovery.embedder_fields import (
    find_max_len,
    find_model_vocabulary,
    find_pad_id,
    find_padding_side,
    find_token_len,
    find_tokenizer,
    is_model,
)
from gpu.embedding.discovery.engine_vocabulary import recognize
from gpu.embedding.discovery.probe_texts import (
    DNA,
    list_vocabulary_strings,
    make_random_text,
    make_short_texts,
    make_string_texts,
)
from gpu.embedding.discovery.tokenizer_json import find_pattern_fault
from gpu.embedding.letter_rule import (
    NEEDS_UPSTREAM,
    UNKNOWN_TO_RULES,
    LetterRule,
    RunRule,
    read_letter_rule,
)
from gpu.embedding.row_layout import NO_BEGIN_END_TOKENS, BeginEndTokens, PaddingSide
from gpu.embedding.upstream_tokenizer import (
    EncodeBatch,
    Engine,
    list_special_tokens,
    make_upstream_encoder,
)
from vocabularies.batch.batch import Batch
from vocabularies.model.tables import BASE, SINGLE
from vocabularies.model.vocabulary import Vocabulary

DEFAULT_IDS = {"A": 1, "C": 2, "G": 3, "T": 4, "N": 0}
"""Ids of letters, in either case, where an embedder has no tokenizer; every other byte is 0."""

MAX_K = 8
"""Letters of the longest words that are looked for; 4**8 words are encoded to learn their ids."""

LONG = (1 << 17) + 1
"""Letters of the longest test, which shows a tokenizer that truncates."""

_ASCII = [chr(byte) for byte in range(128)]
_LETTERS = [character for character in _ASCII if character.isalpha()]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Discovery:
    """The result of `discover`: the ids of a tokenizer and how they are computed.

    Attributes:
        rule: the tables in which ids are looked up; None: only `upstream` gives ids.
        upstream: encodes by the tokenizer; None: there is no tokenizer, and `rule` gives all ids.
        with_special_tokens: encodes by the tokenizer with begin and end tokens; None: there is no
            tokenizer.
        begin_end_tokens: the begin and end tokens of rows; None: they differ between rows, so
            `with_special_tokens` adds them.
        pad_id: the id of the padding.
        padding_side: the side on which the tokenizer pads.
        unknown_id: the id of N; None if N has no id of its own.
        token_len: the lowest number of ids to which rows are padded; None: that of the longest row.
        max_len: the largest number of ids of a row that the embedder accepts; None: no limit is
            known.
        reason: a description of the rule, or why there is none.
        has_engine: whether an engine encodes instead of the tokenizer.
    """

    rule: LetterRule | None
    upstream: EncodeBatch | None
    with_special_tokens: EncodeBatch | None
    begin_end_tokens: BeginEndTokens | None
    pad_id: int
    padding_side: PaddingSide
    unknown_id: int | None
    token_len: int | None
    max_len: int | None
    reason: str
    has_engine: bool = False

    @property
    def use_ids_path(self) -> bool:
        """Whether ids are looked up, so that the tokenizer only encodes rows that need it."""
        return self.rule is not None


def discover(
    source: Any, *, engine: Engine | None = None, token_len: int | Literal["max"] | None = None
) -> Discovery:
    """Find out which ids a tokenizer gives, so that they can be looked up without it.

    Args:
        source: a model like those of transformers, whose config names it; an embedder, which has
            `embed_tokens` and perhaps a `tokenizer`; or a tokenizer: a Vocabulary, a
            `tokenizers.Tokenizer`, a tokenizer with the interface of `transformers`, or any object
            with `encode(text)`.
        engine: encodes for a Vocabulary instead of the reference, and for a tokenizer whose
            tokenizer.json it computes with the same ids; `reason` says whether it does.
        token_len: the number of ids to which every row is padded; "max": the largest number that
            the embedder accepts. None: the embedder's `token_len` if it has one, else that of the
            longest row.

    Raises:
        TypeError: the source is none of these, or token_len is not an integer. UnknownTokenizer:
            the tokenizer of a model cannot be determined.
        ValueError: token_len is below 1, or the embedder has no maximum.
    """
    if source is None or isinstance(source, str | bytes | type):
        shown = f"the class {source.__name__}" if isinstance(source, type) else repr(source)
        raise TypeError(f"{shown} is neither an embedder nor a tokenizer")
    embedder = source if is_model(source) or hasattr(source, "embed_tokens") else None
    tokenizer = source if embedder is None else find_tokenizer(embedder)
    if embedder is not None and tokenizer is None and is_model(embedder):
        tokenizer = find_model_vocabulary(embedder).vocabulary
    max_len = find_max_len(embedder, tokenizer)
    token_len = _choose_token_len(token_len, embedder, max_len)
    pad_id = find_pad_id(embedder, tokenizer)
    if tokenizer is None:
        return Discovery(
            rule=_make_default_rule(),
            upstream=None,
            with_special_tokens=None,
            begin_end_tokens=NO_BEGIN_END_TOKENS,
            pad_id=pad_id,
            padding_side="left",
            unknown_id=0,
            token_len=token_len,
            max_len=max_len,
            reason="no tokenizer: A C G T N are 1 2 3 4 0",
        )
    encoders = _choose_encoders(tokenizer, engine)
    finding = _find_rule(tokenizer, encoders.content)
    reason = "; ".join(filter(None, (finding.reason, encoders.note)))
    if finding.rule is None and not encoders.by_engine:
        name = type(tokenizer).__name__
        _log.warning("ids come from the upstream tokenizer (%s), slowly: %s", name, reason)
    unknown_id = _encode_singles(encoders.content, ["N"])[0]
    return Discovery(
        rule=finding.rule,
        upstream=encoders.content,
        with_special_tokens=encoders.with_special_tokens,
        begin_end_tokens=None
        if finding.rule is None
        else _find_begin_end_tokens(tokenizer, encoders),
        pad_id=pad_id,
        padding_side=find_padding_side(tokenizer),
        unknown_id=None if unknown_id == NEEDS_UPSTREAM else unknown_id,
        token_len=token_len,
        max_len=max_len,
        reason=reason,
        has_engine=encoders.by_engine,
    )


def _choose_token_len(
    token_len: int | Literal["max"] | None, embedder: Any, max_len: int | None
) -> int | None:
    """Choose the lowest number of ids to which rows are padded; None: that of the longest row."""
    if token_len is None:
        return find_token_len(embedder)
    if token_len == "max":
        if max_len is None:
            raise ValueError("token_len is 'max', but the source has no maximum; give a number")
        return max_len
    if (token_len := operator.index(token_len)) < 1:
        raise ValueError(f"token_len is {token_len}; it must be at least 1")
    return token_len


class _Encoders(NamedTuple):
    """The functions that encode by a tokenizer, without and with begin and end tokens.

    Attributes:
        content: encodes without them.
        with_special_tokens: encodes with them.
        by_engine: whether an engine encodes.
        note: whether an engine encodes another library's tokenizer, as text; else "".
    """

    content: EncodeBatch
    with_special_tokens: EncodeBatch
    by_engine: bool
    note: str


def _choose_encoders(tokenizer: Any, engine: Engine | None) -> _Encoders:
    """Encode by the engine where it gives the tokenizer's ids, else by the tokenizer."""
    note = ""
    if engine is not None:
        recognized = recognize(tokenizer, engine)
        if not isinstance(recognized, str):
            is_own = isinstance(tokenizer, Vocabulary)
            note = "" if is_own else "the engine encodes by its tokenizer.json"
            return _Encoders(recognized.content, recognized.with_special_tokens, True, note)
        note = f"the engine is not used: {recognized}"
        _log.warning("%s", note)
    return _Encoders(
        make_upstream_encoder(tokenizer),
        make_upstream_encoder(tokenizer, add_special_tokens=True),
        by_engine=False,
        note=note,
    )


def _find_begin_end_tokens(tokenizer: Any, encoders: _Encoders) -> BeginEndTokens | None:
    """Find the begin and end tokens of rows; None if only the tokenizer adds them."""
    if isinstance(tokenizer, Vocabulary):
        return read_begin_end_tokens(tokenizer)
    return find_begin_end_tokens(encoders.content, encoders.with_special_tokens)


class _Finding(NamedTuple):
    """A rule and its origin, or None and the reason why there is no rule."""

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
        reason = f"words of {words.k} letters, one every {words.stride}"
        for rule in () if fault else _list_rules_with_n(words, upstream, specials or ()):
            if not _find_fault(rule, upstream, tokenizer):
                return _Finding(rule, f"{reason}, and N between them")
        return _decide(words, fault, reason)
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
    """Return a rule with its reason, or without the rule if it has a fault."""
    return _Finding(None, fault) if fault else _Finding(rule, reason)


def _encode_each(upstream: EncodeBatch, texts: Sequence[str]) -> list[NDArray[np.int32] | None]:
    """Encode each text, int32[T]; None if the tokenizer raises an error for it."""
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
    """Find the rule of words of k letters, which do not overlap or begin at every letter.

    Returns None if the number of ids of a long sequence fits neither.
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


def _list_rules_with_n(
    words: LetterRule, upstream: EncodeBatch, specials: Sequence[str]
) -> Iterator[LetterRule]:
    """List the possible rules for N: it ends a sequence of words, or its word is unknown."""
    assert words.word_ids is not None
    if any(set(content.upper()) <= set(DNA + "N") for content in filter(None, specials)):
        return
    n = ord("N")
    single, word = _encode_singles(upstream, ["N", "N" * words.k])
    if single != NEEDS_UPSTREAM and words.stride == words.k:
        classes = np.full(256, UNKNOWN_TO_RULES, np.uint8)
        classes[[ord(letter) for letter in DNA]] = BASE
        classes[n] = SINGLE
        single_ids = np.full(256, NEEDS_UPSTREAM, np.int32)
        single_ids[n] = single
        yield replace(words, runs=RunRule(classes, single_ids, unknown_id=0))
    has_rest = words.letter_ids is None or single != NEEDS_UPSTREAM
    if word != NEEDS_UPSTREAM and has_rest:
        codes, word_ids = words.codes.copy(), words.word_ids.copy()
        codes[n], word_ids[-1] = len(word_ids) - 1, word
        letter_ids = words.letter_ids
        if letter_ids is not None:
            letter_ids = letter_ids.copy()
            letter_ids[n] = single
        yield replace(words, codes=codes, word_ids=word_ids, letter_ids=letter_ids)


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
    """Find a base without a code, or a text with other ids; "" if there is neither.

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
    """Describe the first text that upstream encodes to other ids; "" if there is none."""
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
