"""Turns a batch's options into arrays for kernels, and reports of kernels into errors.

The messages of errors are the reference's. Nothing here uses a device.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.kernels.families import Family
from gpu.kernels.job import constant
from vocabularies.batch.batch import (
    DEFAULT_OPTIONS,
    Batch,
    Encoded,
    EncodeOptions,
    RowError,
    RowRefused,
)
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.model.types import Bpe, Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.special_tokens import split_special_tokens
from vocabularies.reference.tokenizer import encode

NO_LIMIT = constant("NO_LIMIT")
NO_BYTE = constant("NO_BYTE")
DEFAULT_FLAGS = constant("ROW_MATCH_SPECIAL") | constant("ROW_ADD_SPECIAL")
_MODES = {
    "match": constant("ROW_MATCH_SPECIAL"),
    "refuse": constant("ROW_REFUSE_SPECIAL"),
    "plain": 0,
}


@dataclass(frozen=True, slots=True, eq=False)
class RowOptions:
    """The options of the rows of a batch, as arrays.

    Attributes:
        flags: uint8[B], ROW_* bits of cuda/batch/rows.cuh; empty if `is_default`.
        max_length: uint32[B], NO_LIMIT for a row without a limit; None if no row has one.
        spans: bool[B], the rows that request spans; None if no row does.
        post_processed: whether any row gets begin and end tokens or may be truncated.
        refuses: whether any row refuses special tokens.
        augmented: whether the kernel `augment_rows` makes the rows that are encoded: as reverse
            complements, as crops, or with substituted letters.
        is_default: whether kernels need no flags: every row matches special tokens and adds begin
            and end tokens, and no row is truncated.
    """

    flags: NDArray[np.uint8]
    max_length: NDArray[np.uint32] | None
    spans: NDArray[np.bool_] | None
    post_processed: bool
    refuses: bool
    is_default: bool
    augmented: bool = False

    @property
    def may_refuse(self) -> bool:
        """Whether a row of valid UTF-8 may be refused."""
        return self.refuses or self.max_length is not None

    @property
    def is_content(self) -> bool:
        """Whether rows need no more than ids: no post-processing, no spans, no circular rows."""
        plain = self.is_default or not (self.flags & constant("ROW_CIRCLE")).any()
        adds = self.post_processed or self.augmented or self.refuses or self.max_length is not None
        return bool(plain and not adds and self.spans is None)

    def of_rows(self, begin: int, end: int) -> RowOptions:
        """Return the options of the rows from `begin` to `end`.

        Flags of the whole batch, such as `post_processed`, are kept even if these rows need none.
        """
        if self.is_default and self.spans is None:
            return self
        return replace(
            self,
            flags=self.flags[begin:end],
            max_length=None if self.max_length is None else self.max_length[begin:end],
            spans=None if self.spans is None else self.spans[begin:end],
        )

    def of_part(self, row: int) -> RowOptions:
        """Return the options of a part of a row: without begin and end tokens and truncation."""
        options = self.of_rows(row, row + 1)
        if not self.post_processed:
            return options
        own = np.full(1, DEFAULT_FLAGS, np.uint8) if self.is_default else options.flags
        plain = own & np.uint8(0xFF ^ constant("ROW_ADD_SPECIAL"))
        return replace(
            options, flags=plain, max_length=None, post_processed=False, is_default=False
        )

    def adds(self, row: int) -> bool:
        """Return whether a row gets begin and end tokens."""
        adds = self.is_default or bool(self.flags[row] & constant("ROW_ADD_SPECIAL"))
        return self.post_processed and adds

    def added_rows(self) -> NDArray[np.bool_] | Literal[True]:
        """Return bool[B]: the rows that get begin and end tokens; True: all."""
        return self.is_default or self.flags & constant("ROW_ADD_SPECIAL") != 0

    def whole_rows(self) -> NDArray[np.bool_] | None:
        """Return bool[B]: the rows that must not be split into parts; None if all may be split.

        Truncation and spans depend on the whole row, and a reverse complement begins with the end
        of the row.
        """
        if self.spans is not None:
            return np.ones(len(self.spans), np.bool_)
        limited = None if self.max_length is None else self.max_length != NO_LIMIT
        if not self.augmented:
            return limited
        complements: NDArray[np.bool_] = self.flags & constant("ROW_REVERSE_COMPLEMENT") != 0
        return complements if limited is None else complements | limited


WITHOUT_TEMPLATE = EncodeOptions(add_special_tokens=False)
NOTHING_ADDED = RowOptions(np.zeros(0, np.uint8), None, None, False, False, True)
"""Options that match special tokens, add nothing and truncate nothing."""


def row_options(vocabulary: Vocabulary, batch: Batch, family: Family) -> RowOptions:
    """Convert the options of a batch for the kernels of a family.

    Raises:
        NotCovered: a row has an option that the family does not support: circular, reverse
            complement, bytes that are not UTF-8, or upper case.
    """
    options, rows = batch.options, batch.num_rows
    has_template = bool(vocabulary.prefix or vocabulary.suffix)
    if options is DEFAULT_OPTIONS or options == DEFAULT_OPTIONS:
        return _default(has_template)
    if not has_template and options == WITHOUT_TEMPLATE:
        return NOTHING_ADDED
    if isinstance(options, EncodeOptions):
        distinct, which = [options], np.zeros(rows, np.intp)
    else:
        numbers: dict[EncodeOptions, int] = {}
        which = np.fromiter((numbers.setdefault(o, len(numbers)) for o in options), np.intp, rows)
        distinct = [*numbers]
    if any(o.invalid_utf8 != "refuse" for o in distinct):
        raise NotCovered("texts that are not UTF-8 are encoded on the CPU")
    if any(o.uppercase for o in distinct):  # Texts are converted on the host.
        raise NotCovered("the CPU converts letters to upper case")
    if not family.augments_rows:
        if any(o.reverse_complement or o.circular is not None for o in distinct):
            raise NotCovered("text has no reverse complement and is not circular")
    if any(o.reverse_complement for o in distinct) and not vocabulary.supports_reverse_complement:
        raise NotCovered("a vocabulary of text has no reverse complement")
    limits = [
        NO_LIMIT if o.max_length is None else min(int(o.max_length), NO_LIMIT - 1) for o in distinct
    ]
    limited = min(limits, default=NO_LIMIT) < NO_LIMIT
    with_spans = [o.spans for o in distinct]
    wraps = isinstance(vocabulary.model, Kmers) and vocabulary.model.circular
    flags = [_flags(o, wraps) for o in distinct]
    return RowOptions(
        flags=np.array(flags, np.uint8)[which],
        max_length=np.array(limits, np.uint32)[which] if limited else None,
        spans=np.array(with_spans)[which] if any(with_spans) else None,
        post_processed=limited or (has_template and any(o.add_special_tokens for o in distinct)),
        refuses=any(o.special == "refuse" for o in distinct),
        is_default=not limited and set(flags) == {DEFAULT_FLAGS} and not wraps,
        augmented=any(o.reverse_complement for o in distinct),
    )


@functools.cache
def _default(has_template: bool) -> RowOptions:
    """Return the most frequent options, which have no arrays and are made once."""
    return RowOptions(np.zeros(0, np.uint8), None, None, has_template, False, True)


def _flags(options: EncodeOptions, wraps: bool) -> int:
    """Return the ROW_* bits of a row; `wraps`: the vocabulary's rows are circular by default."""
    flags = _MODES[options.special]
    if options.reverse_complement:
        flags |= constant("ROW_REVERSE_COMPLEMENT")
    if wraps if options.circular is None else options.circular:
        flags |= constant("ROW_CIRCLE")
    if options.add_special_tokens:
        flags |= constant("ROW_ADD_SPECIAL")
    if options.truncation_side == "left":
        flags |= constant("ROW_TRUNCATE_LEFT")
    return flags


def row_errors(
    vocabulary: Vocabulary,
    batch: Batch,
    options: RowOptions,
    places: NDArray[np.uint32],
) -> dict[int, RowError]:
    """Return the errors of the refused rows, with the reference's messages.

    Args:
        vocabulary: the vocabulary.
        batch: the batch.
        options: its options.
        places: uint32[B], the first faulty byte of each row, or NO_BYTE.
    """
    errors: dict[int, RowError] = {}
    for row in np.flatnonzero(places != NO_BYTE).tolist():
        errors[row] = _row_error(vocabulary, batch, row)
    if options.max_length is not None:
        added = len(vocabulary.prefix) + len(vocabulary.suffix)
        adds = options.flags & constant("ROW_ADD_SPECIAL") != 0
        for row in np.flatnonzero(adds & (options.max_length < added)).tolist():
            error = RowError.of_max_length(int(options.max_length[row]), added)
            errors.setdefault(row, error)
    return errors


def _row_error(vocabulary: Vocabulary, batch: Batch, row: int) -> RowError:
    options = batch.options if isinstance(batch.options, EncodeOptions) else batch.options[row]
    try:
        text = batch.row_bytes(row).decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        return RowError("not_utf8", f"the text is not UTF-8: {error.reason}", where)
    options = replace(options, add_special_tokens=False, max_length=None)
    try:
        if isinstance(vocabulary.model, Bpe) and vocabulary.model.byte_level:
            for _ in split_special_tokens(vocabulary, text, options.special):
                pass
        else:
            encode(vocabulary, text, options)
    except RowRefused as refused:
        return refused.error
    raise AssertionError("a kernel refused a row that nothing is wrong with")


def drop_rows(encoded: Encoded) -> None:
    """Remove the ids of refused rows from an answer."""
    sizes = np.diff(encoded.offsets)
    begins = encoded.offsets[:-1].copy()
    sizes[list(encoded.errors)] = 0
    encoded.ids = encoded.ids[ragged_indices(begins, sizes)]
    encoded.offsets = offsets_from_lengths(sizes)
