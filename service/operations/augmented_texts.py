"""Applies random crops and substitutions to the sequences of a request before encoding."""

from __future__ import annotations

from itertools import pairwise

from service.core.errors import InvalidRequest
from service.operations.schemas import AugmentationOptions, EncodeBatchRequest
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.augmentation import Augmentation, augment


def augment_texts(
    request: EncodeBatchRequest, options: AugmentationOptions, vocabulary: Vocabulary
) -> list[str]:
    """Return the texts of a request after random crops and substitutions.

    Raises:
        InvalidRequest: the vocabulary is of text, a text has letters beyond ASCII, or offsets are
            requested, which would be of the changed texts.
    """
    if not vocabulary.supports_reverse_complement:
        raise InvalidRequest("the vocabulary is of text, not of sequences", "/augmentation")
    if request.return_offsets not in (None, []):
        message = "offsets would be of sequences that the client has not seen"
        raise InvalidRequest(message, "/return_offsets")
    row = next((row for row, text in enumerate(request.texts) if not text.isascii()), None)
    if row is not None:
        raise InvalidRequest("a sequence has ASCII letters", f"/texts/{row}")
    batch = Batch(request.texts)
    data, offsets = augment(batch.data, batch.offsets, Augmentation(**options.model_dump()))
    letters = data.tobytes().decode("ascii")
    return [letters[begin:end] for begin, end in pairwise(offsets.tolist())]
