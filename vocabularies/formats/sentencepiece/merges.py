"""Finds the merges of a SentencePiece BPE, whose file has only pieces and their scores.

SentencePiece merges the neighbours that together are the piece of the highest score. So each way
to divide a piece into two others is a merge, and its rank follows from the score of the piece.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import MAX_FINDINGS
from vocabularies.formats.sentencepiece.model_file import ModelFile, PieceType

MAX_MERGED = 1 << 26  # Characters of all merges together; 5,000,000 in Gemma's.


class Pair(NamedTuple):
    """Two neighbours that are merged."""

    left: str
    right: str


class Merges(NamedTuple):
    """The merges of a model.

    Attributes:
        pairs: the merges by rank.
        bytes_instead: the characters that are parts of pieces and have no piece of their own; a
            text has the piece of their byte instead.
    """

    pairs: list[Pair]
    bytes_instead: set[str]


def find_merges(model: ModelFile) -> Merges:
    """Find the merges of a BPE.

    Raises:
        VocabularyError: the library tokenizers cannot merge as the model does; the error lists the
            pieces.
    """
    ids = {p.text: i for i, p in enumerate(model.pieces) if p.type == PieceType.NORMAL}
    user_defined = {*model.texts(PieceType.USER_DEFINED)}  # They are cut out before merging.
    used = {character for text in ids if len(text) > 1 for character in text}
    missing = used - ids.keys() - user_defined
    bytes_instead = {each for each in missing if model.byte_fallback and each.isascii()}
    never_merged = missing - bytes_instead
    parts = ids.keys() | bytes_instead
    by_score: dict[float, list[int]] = defaultdict(list)
    pairs: list[tuple[float, int, Pair]] = []
    for text, found in divide(ids, parts):
        i = ids[text]
        score = model.pieces[i].score
        pairs += [(-score, i, pair) for pair in found]
        if found:
            by_score[score].append(i)
    unused = {p.text: i for i, p in enumerate(model.pieces) if p.type == PieceType.UNUSED}
    faults = chain(
        (
            Finding(
                f"pieces[{i}]", f"{text!r} has a character that is no piece, so no merge makes it"
            )
            for text, i in ids.items()
            if len(text) > 1 and not never_merged.isdisjoint(text)
        ),
        (
            Finding(f"pieces[{equal[1]}]", "has the same score as another merged piece")
            for equal in by_score.values()
            if len(equal) > 1
        ),
        (
            # SentencePiece merges it and then divides it again.
            Finding(f"pieces[{unused[text]}]", f"{text!r} is unused, but merged from other pieces")
            for text, found in divide(unused, parts)
            if found
        ),
    )
    if findings := [*islice(faults, MAX_FINDINGS)]:
        raise VocabularyError(findings)
    pairs.sort()
    return Merges([pair for _, _, pair in pairs], bytes_instead)


def divide(texts: Iterable[str], parts: Container[str]) -> Iterator[tuple[str, list[Pair]]]:
    """Yield each text with all ways to divide it in two of `parts`.

    Raises:
        VocabularyError: there are too many of them.
    """
    num_characters = 0
    for text in texts:
        found = [
            Pair(text[:place], text[place:])
            for place in range(1, len(text))
            if text[:place] in parts and text[place:] in parts
        ]
        num_characters += len(text) * len(found)
        if num_characters > MAX_MERGED:
            message = f"their merges have more than the {MAX_MERGED} characters that are read"
            raise VocabularyError.at("pieces", message)
        yield text, found
