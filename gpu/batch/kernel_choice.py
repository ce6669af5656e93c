"""Chooses the kernels that encode a batch: first kernels, and fallback kernels where needed.

A family with plain kernels tries these first. They encode most batches; STATUS_FALLBACK
reports content that only the fallback kernels can encode.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gpu.batch.transfer import fetch, launch, read_letters, send_job, status_of
from gpu.errors import NotCovered
from gpu.kernels.families import Family, encode_kernels, letter_kernels, plain_kernels
from gpu.kernels.job import STATUS, WORD, constant
from gpu.memory.workspace import Workspace
from gpu.vocabulary.cache import Resident

NO_BYTE, ROWS_ARE_RIGHT = constant("NO_BYTE"), constant("ROWS_ARE_RIGHT")
FALLBACK_BREAK, FALLBACK_WIDE, FALLBACK_MARK = (
    constant(f"FALLBACK_{name}") for name in ("BREAK", "WIDE", "MARK")
)
_ROW_LENGTH, _NUM_BYTES, _HAS_WORDS = WORD["row_length"], WORD["num_bytes"], WORD["has_words"]
_SMALL_BYTES = WORD["dna_small_bytes"]
SPAN_BYTES = 8  # The bytes of an id's span on the device.


def first_kernels(
    workspace: Workspace,
    resident: Resident,
    *,
    validate: bool = False,
    count_only: bool = False,
    augmented: bool = False,
    id_bits: int = 32,
) -> tuple[str, ...]:
    """Return the kernels that are tried first: the plain ones if the family has any, else all.

    Args:
        workspace: holds the packed batch.
        resident: the vocabulary.
        validate: whether rows must be checked for UTF-8.
        count_only: whether only id_offsets are needed, for which fewer kernels may suffice.
        augmented: whether rows are augmented before they are encoded.
        id_bits: the number of bits of an id; ids of fewer than 32 bits are written to `narrow_ids`.
    """
    family = resident.family
    if family.plain:
        even = bool(workspace.words[_ROW_LENGTH])
        return plain_kernels(family, id_bits=id_bits, augmented=augmented, even=even)
    kernels = encode_kernels(
        family,
        num_rounds=resident.num_rounds,
        validate=validate,
        count_only=count_only,
        augmented=augmented,
        id_bits=id_bits,
    )
    return _with_one_repair(kernels, workspace) if family.name == "dna" else kernels


def _with_one_repair(kernels: tuple[str, ...], workspace: Workspace) -> tuple[str, ...]:
    """Drop the repair kernel for the other size of DNA chunks, which would do nothing."""
    words = workspace.words
    is_small = words[_NUM_BYTES] <= words[_SMALL_BYTES]
    return _without(kernels, "repair_large" if is_small else "repair_small")


@lru_cache
def _without(kernels: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(kernel for kernel in kernels if kernel != name)


def fallback_kernels(
    workspace: Workspace,
    resident: Resident,
    fallback: int,
    *,
    validate: bool = False,
    with_spans: bool = False,
    id_bits: int = 32,
) -> tuple[str, ...]:
    """Return the fallback kernels for a batch, and prepare the batch for them.

    Args:
        workspace: holds the batch on the device.
        resident: the vocabulary.
        fallback: the bits of STATUS_FALLBACK, which report what the plain kernels could not encode.
        validate: whether rows must be checked for UTF-8.
        with_spans: whether kernels write the spans of ids.
        id_bits: the bits of an id.

    Raises:
        NotCovered: a character may split a k-mer, as in DNABERT-1's tokenizer.
        OutOfMemory: spans do not fit into memory.
    """
    if fallback & FALLBACK_MARK and workspace.words[_HAS_WORDS]:
        raise NotCovered("DNABERT-1 splits k-mers at characters other than letters, digits, blanks")
    if with_spans:
        _reserve_spans(workspace)
    rewritten = bool(fallback & (FALLBACK_WIDE | FALLBACK_MARK))
    read_letters(workspace, rewritten)
    if not rewritten:
        return letter_kernels(resident.family, id_bits=id_bits)
    rounds = resident.num_rounds
    return encode_kernels(resident.family, num_rounds=rounds, validate=validate, id_bits=id_bits)


def _reserve_spans(workspace: Workspace) -> None:
    """Reserve memory for the spans of a batch's ids; kernels write spans if it is there."""
    job = workspace.job[0]
    workspace.reserve("own_spans", SPAN_BYTES * max(1, int(job["num_bytes"])))
    job["own_spans"] = workspace.fields["own_spans"]


def make_room_for_spans(workspace: Workspace, family: Family) -> None:
    """Reserve memory for spans if the first kernels of the family write them; call it after `pack`.

    Raises:
        OutOfMemory: the spans do not fit into memory.
    """
    if family.augments_rows and not family.plain:
        _reserve_spans(workspace)
        send_job(workspace)


def refused_rows(workspace: Workspace, rows: int) -> NDArray[np.uint32]:
    """Wait for the kernels; return uint32[rows], the first faulty byte of each row, or NO_BYTE."""
    if status_of(workspace)[STATUS["ROWS"]] & np.uint64(ROWS_ARE_RIGHT):
        return np.full(rows, NO_BYTE, np.uint32)
    both = [fetch(workspace, name, np.uint32, rows) for name in ("row_errors", "row_refused")]
    return np.minimum(*both)


def launch_content(
    workspace: Workspace,
    resident: Resident,
    processors: int,
    *,
    validate: bool = False,
    count_only: bool = False,
    augmented: bool = False,
    with_spans: bool = False,
) -> None:
    """Queue the kernels that encode a packed batch; wait only if the family has plain kernels."""
    first = first_kernels(
        workspace, resident, validate=validate, count_only=count_only, augmented=augmented
    )
    if with_spans:
        make_room_for_spans(workspace, resident.family)
    launch(workspace, first, processors)
    if not resident.family.plain:
        return
    fallback = int(status_of(workspace)[STATUS["FALLBACK"]])
    if fallback or with_spans:
        others = fallback_kernels(
            workspace, resident, fallback, validate=validate, with_spans=with_spans
        )
        launch(workspace, others, processors)
