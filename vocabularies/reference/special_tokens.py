"""Cuts a text at its special tokens and normalizes what lies between, as Hugging Face does.

Part of the oracle (`reference`): plain Python, knows no model and no template.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from vocabularies.batch.batch import RowError, RowRefused
from vocabularies.model.types import Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import normalize
from vocabularies.preprocessing.unicode_classes import class_mask

Span = tuple[int, int]
Token = tuple[int, int, int]
"""An id with the begin and end byte of the sent text that it stands for."""
SpecialMode = Literal["match", "plain", "refuse"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of text, perhaps rewritten, that knows where its bytes came from.

    Attributes:
        sources: for each UTF-8 byte of the text, its (begin, end) byte in the sent text.
    """

    text: str
    sources: Sequence[Span]

    @classmethod
    def of(cls, text: str) -> Stretch:
        """A text as it was sent: byte i came from byte i."""
        return cls(text, [(i, i + 1) for i in range(len(text.encode()))])

    def token(self, token_id: int, begin: int, end: int) -> Token:
        """An id for the bytes begin..end (end > begin) of this stretch."""
        return token_id, self.sources[begin][0], self.sources[end - 1][1]

    def cut(self, spans: Iterable[Span]) -> Iterator[Stretch]:
        """The parts that lie between (begin, end) in characters."""
        offsets = self.byte_offsets()
        for begin, end in spans:
            yield Stretch(self.text[begin:end], self.sources[offsets[begin] : offsets[end]])

    def byte_offsets(self) -> list[int]:
        """Where each character begins, in bytes; one more entry for the end."""
        if self.text.isascii():
            return [*range(len(self.text) + 1)]
        return list(accumulate((len(c.encode()) for c in self.text), initial=0))

    def normalized(self, vocabulary: Vocabulary) -> Stretch:
        """After the vocabulary's normalizers; a byte then came from whole characters."""
        if not vocabulary.normalizers:
            return self
        text, alignment = normalize(self.text, vocabulary.normalizers)
        offsets = self.byte_offsets()
        sources = []
        for character, (begin, end) in zip(text, alignment, strict=True):
            first = self.sources[offsets[begin]][0]
            last = self.sources[offsets[end] - 1][1] if begin < end else first
            sources += [(first, last)] * len(character.encode())
        return Stretch(text, sources)


def cut_text(vocabulary: Vocabulary, text: str, mode: SpecialMode) -> Iterator[Stretch | Token]:
    """Special tokens and the normalized stretches between them, in order, no stretch empty.

    Tokens that are not `normalized` are looked for first, in the text as it is; the others in what
    the normalizers make of each stretch and of the token's own content. DNABERT's special tokens
    are words among its k-mers and nothing is cut here for them.

    Raises:
        RowRefused: mode is "refuse" and a special token was found.

    Example: " ab" with a special token "a" (not normalized) and the normalizer strip gives
    the token of "a" (1, 2) and the stretch "b"; the stretch " " before is stripped to nothing.
    """
    whole = Stretch.of(text)
    if isinstance(vocabulary.model, Kmers) and vocabulary.model.whitespace == "words":
        yield from (stretch for stretch in [whole.normalized(vocabulary)] if stretch.text)
        return
    for part in _cut_special(whole, _looked_for(vocabulary, False), mode):
        if isinstance(part, Stretch):
            normalized = part.normalized(vocabulary)
            yield from _cut_special(normalized, _looked_for(vocabulary, True), mode)
        else:
            yield part


@functools.lru_cache(maxsize=32)
def _looked_for(vocabulary: Vocabulary, normalized: bool) -> dict[str, SpecialToken]:
    """{text: token} of the tokens matched before (False) or after (True) the normalizers."""
    found: dict[str, SpecialToken] = {}
    for token in sorted(vocabulary.special_tokens, key=lambda token: not token.special):
        if token.matched and token.normalized == normalized:
            steps = vocabulary.normalizers if normalized else ()
            found.setdefault(normalize(token.content, steps)[0], token)
    found.pop("", None)
    return found


@functools.lru_cache(maxsize=32)
def _longest_first(contents: frozenset[str]) -> re.Pattern[str]:
    """At each place Python tries the alternatives in order, so the longest content wins."""
    in_order = sorted(contents, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, in_order)))


def _cut_special(
    stretch: Stretch, looked_for: dict[str, SpecialToken], mode: SpecialMode
) -> Iterator[Stretch | Token]:
    """One round of the search: leftmost, longest, without overlaps.

    A match that does not count (plain mode, single_word) still uses its text up: no shorter token
    is looked for in it. White space taken by rstrip may be taken again by a next token that begins
    with it, and a token that lstrip leaves nothing of is gone. All of it is what `tokenizers` does.
    """
    text, offsets, last = stretch.text, stretch.byte_offsets(), 0
    pattern = _longest_first(frozenset(looked_for)) if looked_for else None
    for match in pattern.finditer(text) if pattern else ():
        token = looked_for[match.group()]
        begin, end = match.span()
        if token.single_word and (_is_word(text[:begin][-1:]) or _is_word(text[end:][:1])):
            continue
        if not check_special(token, mode, stretch.sources[offsets[begin]][0]):
            continue
        while token.lstrip and begin > last and _is_space(text[begin - 1]):
            begin -= 1
        while token.rstrip and end < len(text) and _is_space(text[end]):
            end += 1
        begin = max(begin, last) if token.lstrip else begin
        if last < begin:
            yield from stretch.cut([(last, begin)])
        if begin < end:
            yield stretch.token(token.id, offsets[begin], offsets[end])
        last = end
    if last < len(text):
        yield from stretch.cut([(last, len(text))])


def check_special(token: SpecialToken, mode: SpecialMode, byte: int) -> bool:
    """Whether a found special token counts as one.

    Raises:
        RowRefused: it is not wanted in the text.
    """
    if token.special and mode == "refuse":
        raise RowRefused(refusal_of(token, byte))
    return mode == "match" or not token.special


def refusal_of(token: SpecialToken, byte: int) -> RowError:
    """That a text holds a special token at this byte."""
    message = f"the text holds the special token {token.content!r}"
    return RowError("special_token_refused", message, f"byte {byte}")


def _is_word(character: str) -> bool:
    return bool(character) and bool(class_mask("w", "rust")[ord(character)])


def _is_space(character: str) -> bool:
    return bool(class_mask("s", "rust")[ord(character)])
