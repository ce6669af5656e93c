"""Warns on stderr when many ids of a command's sequences are the unknown token's."""

from __future__ import annotations

import sys

import numpy as np

from service.operations.unknown_ids import WARNED_SHARE
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.batch.upper_case import upper_case_bytes
from vocabularies.model.vocabulary import Vocabulary


class UnknownIds:
    """Counts unknown ids, only for vocabularies of sequences and not of text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._added = {*vocabulary.prefix, *vocabulary.suffix} - {vocabulary.unknown_id}
        self._num_unknown = 0
        self._num_ids = 0  # Without begin and end tokens.
        ignores_case = getattr(vocabulary.model, "case", "keep") == "upper" or any(
            normalizer.kind == "lowercase" for normalizer in vocabulary.normalizers
        )
        self._looks_at_case = not ignores_case
        self._has_lower_case = False  # In a batch with unknown ids, if the case matters.

    def add(self, batch: Batch, encoded: Encoded) -> None:
        """Count the ids of a batch."""
        if self._vocabulary.unknown_id is None:
            return
        ids = encoded.ids
        num_unknown = int(np.count_nonzero(ids == self._vocabulary.unknown_id))
        self._num_unknown += num_unknown
        self._num_ids += len(ids) - sum(int(np.count_nonzero(ids == each)) for each in self._added)
        if num_unknown and self._looks_at_case and not self._has_lower_case:
            self._has_lower_case = bool((upper_case_bytes(batch.data) != batch.data).any())

    def warn(self, *, uppercase: bool) -> None:
        """Print a warning if many ids are unknown; `uppercase` is whether the option is set."""
        if not self._num_unknown or self._num_unknown < WARNED_SHARE * self._num_ids:
            return
        unknown = self._vocabulary.token_string(self._vocabulary.unknown_id or 0)
        message = f"warptok: {self._num_unknown / self._num_ids:.0%} of the ids are {unknown}"
        if self._has_lower_case and not uppercase:
            message += "; there are lower-case letters, which --uppercase makes upper case"
        print(message, file=sys.stderr)
