"""Vocabularies that fastokens does not cover: another encoder answers for them."""

from __future__ import annotations

from service.engines.cpu.bpe.fastokens_quirks.ambiguous_special_tokens import (
    MAX_AMBIGUOUS,
    find_ambiguous,
)
from vocabularies.model.byte_alphabet import UTF8_BYTES
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary


def covers(vocabulary: Vocabulary) -> bool:
    """Whether fastokens gives the reference's ids, but for rows that the encoder sorts out.

    It differs for a single_word token at a border, where a byte of texts has no token, and around
    ambiguous special tokens, where the reference helps out while they are few.
    """
    known = set(vocabulary.tokens)
    return (
        isinstance(vocabulary.model, Bpe)
        and vocabulary.model.byte_level
        and all(bytes([byte]) in known for byte in UTF8_BYTES)
        and not any(token.matched and token.single_word for token in vocabulary.special_tokens)
        and len(find_ambiguous(vocabulary.special_tokens)) <= MAX_AMBIGUOUS
    )
