"""Special tokens that only the library finds: behind normalizers that are none of ours.

With Lowercase it finds "<s>" in the text "<S>" where the token is `normalized`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Encoding

from vocabularies.batch.batch import RowError
from vocabularies.model.types import SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.special_tokens import special_token_refusal


def has_hidden_tokens(vocabulary: Vocabulary) -> bool:
    """Whether the library may find special tokens in other words than their own."""
    return isinstance(vocabulary.model, Upstream) and any(
        token.special and token.normalized for token in vocabulary.special_tokens
    )


def found_behind_normalizers(
    text: str, found: Encoding, plain: Encoding, special: Mapping[int, SpecialToken]
) -> RowError | None:
    """The refusal of a text for its first special token; None where it holds none.

    Args:
        text: the text.
        found: its ids with special tokens.
        plain: its ids where special tokens are left as text: one that stands there at the same
            place is an ordinary one, as [UNK] is.
        special: by id.
    """
    if found.ids == plain.ids and found.offsets == plain.offsets:
        return None
    ordinary = {*zip(plain.ids, plain.offsets, strict=True)}
    tokens = [each for each in zip(found.ids, found.offsets, strict=True) if each[0] in special]
    # Where all stand there as ordinary ones, too, one of them still parts what is around it.
    for token_id, (begin, end) in [each for each in tokens if each not in ordinary] or tokens:
        taken = text[begin:end]  # With the blanks that the token takes.
        begin += len(taken) - len(taken.lstrip()) if special[token_id].lstrip else 0
        return special_token_refusal(special[token_id], len(text[:begin].encode()))
    return None


def earlier(one: RowError | None, other: RowError | None) -> RowError | None:
    """The refusal of the two whose place comes first."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda error: int(error.where.removeprefix("byte ")))
