"""Finds the merges of a SentencePiece BPE, whose file has only pieces and their scores.

SentencePiece merges the neighbours that together are the piece of the highest score. So each way
to divide a piece into two others is a merge, and its rank follows from the score of the piece.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import MAX_FINDINGS
from vocabularies.formats.sentencepiece.model_file import ModelFile, PieceType


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
    findings: list[Finding] = []
    missing = {character for text in ids if len(text) > 1 for character in text} - ids.keys()
    bytes_instead = {each for each in missing if model.byte_fallback and each.isascii()}
    parts = ids.keys() | bytes_instead
    by_score: dict[float, list[int]] = defaultdict(list)
    pairs: list[tuple[float, int, Pair]] = []
    for text, i in ids.items():
        score = model.pieces[i].score
        found = [
            Pair(text[:place], text[place:])
            for place in range(1, len(text))
            if text[:place] in parts and text[place:] in parts
        ]
        pairs += [(-score, i, pair) for pair in found]
        if found:
            by_score[score].append(i)
        if not missing.issubset(bytes_instead) and not (missing - bytes_instead).isdisjoint(text):
            if len(text) > 1:
                message = f"{text!r} has a character that is no piece, which no merge can have"
                findings.append(Finding(f"pieces[{i}]", message))
    for equal in by_score.values():
        if len(equal) > 1:
            message = "has the same score as another merged piece: which one is merged first?"
            findings.append(Finding(f"pieces[{equal[1]}]", message))
    findings += _find_merged_unused(model, parts)
    if findings:
        raise VocabularyError(findings[:MAX_FINDINGS])
    pairs.sort()
    return Merges([pair for _, _, pair in pairs], bytes_instead)


def _find_merged_unused(model: ModelFile, parts: set[str]) -> list[Finding]:
    """Find unused pieces that SentencePiece merges and then divides again."""
    return [
        Finding(f"pieces[{i}]", f"{piece.text!r} is unused, but merged from other pieces")
        for i, piece in enumerate(model.pieces)
        if piece.type == PieceType.UNUSED
        and any(
            piece.text[:place] in parts and piece.text[place:] in parts
            for place in range(1, len(piece.text))
        )
    ]
