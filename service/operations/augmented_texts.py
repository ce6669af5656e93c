"""Applies random crops and substitutions to the sequences of a request before encoding."""

from __future__ import annotations

from itertools import pairwise

from service.core.errors import InvalidRequest
from service.operations.schemas import EncodeBatchRequest
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.augmentation import Augmentation, NotASequence, StreamAugmenter


def check_augmentation(vocabulary: Vocabulary, where: str, *, spans: str | None = None) -> None:
    """Check that requests for a vocabulary can be augmented.

    Args:
        vocabulary: the vocabulary.
        where: the place of the augmentation in the request.
        spans: the place in the request of an option that requests offsets; None if there is none.

    Raises:
        InvalidRequest: the vocabulary is for text, or offsets are requested: they would refer to
            the changed sequences, which the client does not have.
    """
    if not vocabulary.supports_reverse_complement:
        raise InvalidRequest(
            "is not possible: this is a vocabulary of text, not of sequences", where
        )
    if spans is not None:
        message = (
            "is not possible with augmentation, because offsets would refer to the changed "
            "sequences"
        )
        raise InvalidRequest(message, spans)


class RowAugmenter:
    """Augments the batches of one request.

    Args:
        augmentation: the changes; `first_row` is the number of the request's first row.
        where: the place of a row in the request, with {} for the row's number.
    """

    def __init__(self, augmentation: Augmentation, where: str) -> None:
        self._rows = StreamAugmenter(augmentation)
        self._where = where

    def augment(self, batch: Batch) -> Batch:
        """Return the next batch of the request with augmented rows.

        Raises:
            InvalidRequest: a row contains letters beyond ASCII, or a row's number is too large.
        """
        try:
            return self._rows.augment(batch)
        except NotASequence as error:
            raise InvalidRequest(str(error), self._where.format(error.row)) from error
        except ValueError as error:
            raise InvalidRequest(str(error), "/first_row") from error


def augment_request(request: EncodeBatchRequest, vocabulary: Vocabulary) -> EncodeBatchRequest:
    """Return a request with augmented texts, or the same request if it requests no augmentation.

    Raises:
        InvalidRequest: the vocabulary is for text, a text contains letters beyond ASCII, or offsets
            are requested: they would refer to the changed texts.
    """
    if request.augmentation is None:
        return request
    has_spans = request.return_offsets not in (None, [])
    check_augmentation(vocabulary, "/augmentation", spans="/return_offsets" if has_spans else None)
    changes = Augmentation(**request.augmentation.model_dump())
    batch = RowAugmenter(changes, "/texts/{}").augment(Batch(request.texts))
    letters = batch.data.tobytes().decode("ascii")
    texts = [letters[begin:end] for begin, end in pairwise(batch.offsets.tolist())]
    return request.model_copy(update={"texts": texts, "augmentation": None})
