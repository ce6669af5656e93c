"""Finds special tokens that the library finds only after its normalizers have changed a text.

Example: after the normalizer Lowercase, it finds a `normalized` token "<s>" in the text "<S>".
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Encoding

from vocabularies.batch.batch import RowError
from vocabularies.model.types import SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.special_tokens import special_token_refusal


def has_hidden_tokens(vocabulary: Vocabulary) -> bool:
    """Return whether normalizers may create special tokens in texts that do not contain them."""
    return isinstance(vocabulary.model, Upstream) and any(
        token.special and token.normalized for token in vocabulary.special_tokens
    )


def find_special_token(
    text: str, matched: Encoding, plain: Encoding, special: Mapping[int, SpecialToken]
) -> RowError | None:
    """Make the refusal of a text for its first special token; None if it has none.

    Args:
        text: the text.
        matched: the encoding of the text with special tokens matched.
        plain: the encoding of the text with special tokens left as text; a token that is at the
            same place in both, such as [UNK], counts as an ordinary one.
        special: the special tokens by id.
    """
    if matched.ids == plain.ids and matched.offsets == plain.offsets:
        return None
    ordinary = {*zip(plain.ids, plain.offsets, strict=True)}
    found = [
        (token_id, span)
        for token_id, span in zip(matched.ids, matched.offsets, strict=True)
        if token_id in special
    ]
    # If all of them are ordinary ones, too, one of them still separates the text around it.
    for token_id, (begin, end) in [each for each in found if each not in ordinary] or found:
        covered = text[begin:end]  # With the white space that the token strips.
        begin += len(covered) - len(covered.lstrip()) if special[token_id].lstrip else 0
        return special_token_refusal(special[token_id], len(text[:begin].encode()))
    return None


def choose_first(one: RowError | None, other: RowError | None) -> RowError | None:
    """Return the refusal with the earlier place; either may be None."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda error: int(error.where.removeprefix("byte ")))
