"""From text to ids, whatever the family: plain kernels first, others where need be."""

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
SPAN_BYTES = 8  # Of an id's own span on the device.


def first_kernels(
    workspace: Workspace,
    resident: Resident,
    *,
    validate: bool = False,
    count_only: bool = False,
    augmented: bool = False,
    id_bits: int = 32,
) -> tuple[str, ...]:
    """Those that are tried first: the plain ones of a family that has such, else all.

    Args:
        workspace: where the batch has been packed.
        resident: the vocabulary.
        validate: whether rows may not be UTF-8.
        count_only: id_offsets without ids, where that is less work.
        augmented: whether rows are not encoded as they were sent.
        id_bits: of an id; fewer than 32 are written to `narrow_ids`.
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
    return _of_chunks(kernels, workspace) if family.name == "dna" else kernels


def _of_chunks(kernels: tuple[str, ...], workspace: Workspace) -> tuple[str, ...]:
    """Of the kernels that repair windows that of the batch's chunks: others would do nothing."""
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
    """Return the kernels that encode a batch which the plain ones could not, and ready it for them.

    `fallback`: the bits of STATUS_FALLBACK, which say what the plain kernels met.

    Raises:
        NotCovered: a character may take a k-mer apart, as DNABERT-1's tokenizer does.
        OutOfMemory: spans were asked for, and there is no room for them.
    """
    if fallback & FALLBACK_MARK and workspace.words[_HAS_WORDS]:
        raise NotCovered("DNABERT-1 takes k-mers apart at what is no letter, digit or blank")
    if with_spans:
        _reserve_spans(workspace)
    rewritten = bool(fallback & (FALLBACK_WIDE | FALLBACK_MARK))
    read_letters(workspace, rewritten)
    if not rewritten:
        return letter_kernels(resident.family, id_bits=id_bits)
    rounds = resident.num_rounds
    return encode_kernels(resident.family, num_rounds=rounds, validate=validate, id_bits=id_bits)


def _reserve_spans(workspace: Workspace) -> None:
    """Room for the spans of a batch's ids, which kernels write where there is such."""
    job = workspace.job[0]
    workspace.reserve("own_spans", SPAN_BYTES * max(1, int(job["num_bytes"])))
    job["own_spans"] = workspace.fields["own_spans"]


def make_room_for_spans(workspace: Workspace, family: Family) -> None:
    """Room for the spans that the first kernels of some families write; behind the batch.

    Raises:
        OutOfMemory: there is none.
    """
    if family.augments_rows and not family.plain:
        _reserve_spans(workspace)
        send_job(workspace)


def refused_rows(workspace: Workspace, rows: int) -> NDArray[np.uint32]:
    """uint32[rows], once all kernels are done: where a row is at fault first, or NO_BYTE."""
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
    """Queue what makes ids of a batch; waits only where plain kernels are tried."""
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
