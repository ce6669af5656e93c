"""Decides whether fastokens covers a vocabulary; if not, another encoder is chosen."""

from __future__ import annotations

from service.engines.cpu.bpe.fastokens_quirks.ambiguous_special_tokens import (
    MAX_AMBIGUOUS,
    find_ambiguous,
)
from vocabularies.model.byte_alphabet import UTF8_BYTES
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary


def covers(vocabulary: Vocabulary) -> bool:
    """Return whether fastokens gives the reference's ids, but for rows that the encoder replaces.

    fastokens differs on single_word tokens at a border, on bytes without a token, and near
    ambiguous special tokens. Up to MAX_AMBIGUOUS of the latter, the reference encodes the rows.
    """
    known = set(vocabulary.tokens)
    return (
        isinstance(vocabulary.model, Bpe)
        and vocabulary.model.byte_level
        and all(bytes([byte]) in known for byte in UTF8_BYTES)
        and not any(token.matched and token.single_word for token in vocabulary.special_tokens)
        and len(find_ambiguous(vocabulary.special_tokens)) <= MAX_AMBIGUOUS
    )
