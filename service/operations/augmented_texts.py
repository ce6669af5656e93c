"""Applies random crops and substitutions to the sequences of a request before encoding."""

from __future__ import annotations

from itertools import pairwise

from service.core.errors import InvalidRequest
from service.operations.schemas import EncodeBatchRequest
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.augmentation import Augmentation, NotASequence, StreamAugmenter


def check_augmentation(vocabulary: Vocabulary, where: str, *, spans: str | None = None) -> None:
    """Check that sequences of a vocabulary can be augmented.

    Args:
        vocabulary: the vocabulary.
        where: the place of the augmentation in the request.
        spans: the place of an option that requests the places of ids; None: the request has none.

    Raises:
        InvalidRequest: the vocabulary is of text, or places are requested, which would be of the
            changed sequences.
    """
    if not vocabulary.supports_reverse_complement:
        raise InvalidRequest("the vocabulary is of text, not of sequences", where)
    if spans is not None:
        message = "offsets would be of sequences that the client has not seen"
        raise InvalidRequest(message, spans)


class RowAugmenter:
    """Augments the batches of a request.

    Args:
        augmentation: the changes; `first_row` is the number of the request's first row.
        where: the place of a row in the request, with {} for its number.
    """

    def __init__(self, augmentation: Augmentation, where: str) -> None:
        self._rows = StreamAugmenter(augmentation)
        self._where = where

    def augment(self, batch: Batch) -> Batch:
        """Return the request's next batch with its rows augmented.

        Raises:
            InvalidRequest: a row has letters beyond ASCII, or its number is too large.
        """
        try:
            return self._rows.augment(batch)
        except NotASequence as error:
            raise InvalidRequest(str(error), self._where.format(error.row)) from error
        except ValueError as error:
            raise InvalidRequest(str(error), "/first_row") from error


def augment_request(request: EncodeBatchRequest, vocabulary: Vocabulary) -> EncodeBatchRequest:
    """Return a request with augmented texts; the request itself if it has no augmentation.

    Raises:
        InvalidRequest: the vocabulary is of text, a text has letters beyond ASCII, or offsets are
            requested, which would be of the changed texts.
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
