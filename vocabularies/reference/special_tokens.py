"""Splits a text at special tokens and normalizes the parts between, as Hugging Face does.

Part of the reference, in plain Python. It does not depend on models or templates.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

from vocabularies.batch.batch import RowError, RowRefused
from vocabularies.model.types import Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import normalize
from vocabularies.preprocessing.unicode_classes import class_mask

Span = tuple[int, int]
SpecialMode = Literal["match", "plain", "refuse"]


class Token(NamedTuple):
    """An id with its begin and end byte in the original text."""

    id: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class AlignedText:
    """A part of a text, possibly normalized, with the source of each byte in the original text.

    Attributes:
        sources: for each UTF-8 byte of the part, its source (begin, end) in the original text, in
            bytes.
    """

    text: str
    sources: Sequence[Span]

    @classmethod
    def of(cls, text: str) -> AlignedText:
        """Make the aligned text of a whole original text: the source of byte i is byte i."""
        return cls(text, [(i, i + 1) for i in range(len(text.encode()))])

    def token(self, token_id: int, begin: int, end: int) -> Token:
        """Make a token for the bytes begin..end (end > begin) of this text."""
        return Token(token_id, *self.source_span(begin, end))

    def source_span(self, begin: int, end: int) -> Span:
        """Convert the bytes begin..end of this text to begin and end byte in the original text."""
        first_begin, _ = self.sources[begin]
        _, last_end = self.sources[end - 1]
        return first_begin, last_end

    def split(self, spans: Iterable[Span]) -> Iterator[AlignedText]:
        """Yield the parts of the text at (begin, end), in characters."""
        offsets = self.byte_offsets()
        for begin, end in spans:
            yield AlignedText(self.text[begin:end], self.sources[offsets[begin] : offsets[end]])

    def byte_offsets(self) -> list[int]:
        """Return the byte offset of each character, and of the end."""
        if self.text.isascii():
            return [*range(len(self.text) + 1)]
        return list(accumulate((len(c.encode()) for c in self.text), initial=0))

    def normalized(self, vocabulary: Vocabulary) -> AlignedText:
        """Apply the vocabulary's normalizers; the source of a new byte is whole characters."""
        if not vocabulary.normalizers:
            return self
        text, alignment = normalize(self.text, vocabulary.normalizers)
        offsets = self.byte_offsets()
        sources = []
        for character, (begin, end) in zip(text, alignment, strict=True):
            if begin < end:
                source = self.source_span(offsets[begin], offsets[end])
            else:
                first, _ = self.sources[offsets[begin]]
                source = first, first
            sources += [source] * len(character.encode())
        return AlignedText(text, sources)


def split_special_tokens(
    vocabulary: Vocabulary, text: str, mode: SpecialMode
) -> Iterator[AlignedText | Token]:
    """Yield special tokens and the normalized texts between them, in order, none empty.

    Tokens that are not `normalized` are matched first, in the original text. The others are matched
    in each normalized part, by their normalized content. DNABERT's special tokens are words between
    its k-mers, so its texts are not split here.

    Raises:
        RowRefused: the mode is "refuse" and the text contains a special token.

    Example: with the special token "a" (not normalized) and the normalizer strip, " ab" is split
    into the token of "a" at (1, 2) and the text "b"; the text " " before it is stripped and
    dropped.
    """
    whole = AlignedText.of(text)
    if isinstance(vocabulary.model, Kmers) and vocabulary.model.whitespace == "words":
        yield from (part for part in [whole.normalized(vocabulary)] if part.text)
        return
    for part in _split_once(whole, _tokens_to_match(vocabulary, False), mode):
        if isinstance(part, AlignedText):
            normalized = part.normalized(vocabulary)
            yield from _split_once(normalized, _tokens_to_match(vocabulary, True), mode)
        else:
            yield part


@functools.lru_cache(maxsize=32)
def _tokens_to_match(vocabulary: Vocabulary, normalized: bool) -> dict[str, SpecialToken]:
    """Return {text: token} of the tokens matched before (False) or after (True) normalization."""
    found: dict[str, SpecialToken] = {}
    for token in sorted(vocabulary.special_tokens, key=lambda token: not token.special):
        if token.matched and token.normalized == normalized:
            steps = vocabulary.normalizers if normalized else ()
            found.setdefault(normalize(token.content, steps)[0], token)
    found.pop("", None)
    return found


@functools.lru_cache(maxsize=32)
def _longest_first(contents: frozenset[str]) -> re.Pattern[str]:
    """Compile a pattern that matches the longest content; Python tries alternatives in order."""
    in_order = sorted(contents, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, in_order)))


def _split_once(
    part: AlignedText, tokens: dict[str, SpecialToken], mode: SpecialMode
) -> Iterator[AlignedText | Token]:
    """Split a text at the leftmost-longest matches of some tokens, without overlaps.

    If a match is ignored (mode "plain", single_word), no shorter token is matched in its text. A
    token may begin inside the white space that rstrip added to the token before; a token with no
    text outside that white space is dropped. All this is as in `tokenizers`.
    """
    text, offsets, last = part.text, part.byte_offsets(), 0
    pattern = _longest_first(frozenset(tokens)) if tokens else None
    for match in pattern.finditer(text) if pattern else ():
        token = tokens[match.group()]
        begin, end = match.span()
        if token.single_word and (_is_word(text[:begin][-1:]) or _is_word(text[end:][:1])):
            continue
        sent_byte, _ = part.sources[offsets[begin]]
        if not accept_special_token(token, mode, sent_byte):
            continue
        while token.lstrip and begin > last and _is_space(text[begin - 1]):
            begin -= 1
        while token.rstrip and end < len(text) and _is_space(text[end]):
            end += 1
        begin = max(begin, last) if token.lstrip else begin
        if last < begin:
            yield from part.split([(last, begin)])
        if begin < end:
            yield part.token(token.id, offsets[begin], offsets[end])
        last = end
    if last < len(text):
        yield from part.split([(last, len(text))])


def accept_special_token(token: SpecialToken, mode: SpecialMode, byte: int) -> bool:
    """Return whether a special token at a byte of the original text is encoded as its id.

    Raises:
        RowRefused: the mode is "refuse".
    """
    if token.special and mode == "refuse":
        raise RowRefused(special_token_refusal(token, byte))
    return mode == "match" or not token.special


def special_token_refusal(token: SpecialToken, byte: int) -> RowError:
    """Make the error of a row that contains a special token at this byte."""
    message = f"the text contains the special token {token.content!r}"
    return RowError("special_token_refused", message, f"byte {byte}")


def _is_word(character: str) -> bool:
    return bool(character) and bool(class_mask("w", "rust")[ord(character)])


def _is_space(character: str) -> bool:
    return bool(class_mask("s", "rust")[ord(character)])
