"""Ids that the kernels look up are those of torch's look-up, however rows lie and are staged."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.embedding.letter_rule import NEEDS_UPSTREAM, read_letter_rule
from gpu.embedding.row_layout import BeginEndTokens, RowLayout
from gpu.embedding.tokenizer_discovery import discover
from tests.support.emulation.torch_kernels import EmulatedKernels, compiled, memory
from tests.support.inputs.sequence_strategies import (
    SEQUENCES,
    character_vocabularies,
    kmer_vocabularies,
)
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

pytestmark = pytest.mark.torch
torch = torch_or_skip()
from gpu.embedding import pinned_text  # noqa: E402
from gpu.embedding.lookup import kernel_lookup  # noqa: E402
from gpu.embedding.lookup.kernel_lookup import KernelLookUp  # noqa: E402
from gpu.embedding.lookup.torch_lookup import TorchLookUp  # noqa: E402
from gpu.embedding.pinned_text import TextMemory  # noqa: E402
from gpu.embedding.sequence_ids import SequenceIds  # noqa: E402

LAYOUT = RowLayout(77)
LAUNCH = """
#include "embedding/look_up_rows.cuh"
extern "C" void look_up_flat(const LookUp* job, uint64_t blocks) {
    for (uint64_t block = 0; block < blocks; block++)
        for (uint32_t thread = 0; thread < LOOK_UP_BLOCK; thread++)
            look_up_letters(*job, job->codes, block, thread);
}
extern "C" void look_up_rows(const LookUp* job, uint64_t blocks) {
    for (uint64_t place = 0; place < blocks * LOOK_UP_BLOCK; place++)
        look_up_row(*job, job->codes, place);
}
extern "C" uint64_t flat_bytes() { return LOOK_UP_BLOCK * FLAT_ROUNDS * 4; }
"""


def library() -> ctypes.CDLL:
    return compiled("look_up_rows", LAUNCH)


@pytest.fixture(autouse=True)
def _without_a_device(monkeypatch):
    monkeypatch.setattr(kernel_lookup, "current_stream", lambda device: 0)
    marks = np.zeros(kernel_lookup.NUM_MARKS, np.int64)
    monkeypatch.setattr(kernel_lookup, "get_batch_marks", lambda: marks)


def look_up_and_check(
    rule, batch: Batch, dtype=torch.int64, extra: int = 0, layout: RowLayout = LAYOUT
) -> tuple[list, bool, list[str]]:
    """Look up by the kernels, compare with torch's look-up; return ids, mark and launches."""
    counts = rule.count_ids(np.diff(batch.offsets)) + len(layout.begin_end_tokens.ids)
    width = int(counts.max(initial=0)) + extra
    torch_look_up = TorchLookUp(rule, layout, torch.device("cpu"), dtype)
    expected = torch_look_up(batch.data, batch.offsets, width)
    kernels = EmulatedKernels(library(), kernel_lookup.THREADS)
    cpu = torch.device("cpu")
    look_up = KernelLookUp(kernels, rule, layout, cpu, dtype, TextMemory(memory))
    result = look_up(batch.data, batch.offsets, width)
    assert result.ids.dtype == dtype
    assert result.ids.shape == (len(batch), width)
    is_unknown = rule.codes[batch.data] == NEEDS_UPSTREAM
    rows = np.unique(np.searchsorted(batch.offsets, np.flatnonzero(is_unknown), side="right") - 1)
    complete = np.setdiff1d(np.arange(len(batch)), rows)
    assert torch.equal(result.ids[complete], expected.ids[complete])
    has_unknown = result.has_unknown is not None and result.has_unknown()
    assert has_unknown == is_unknown.any()
    assert has_unknown == (expected.has_unknown is not None and expected.has_unknown())
    # The result holds the text that the device reads.
    assert not len(batch.data) or len(result.host) == 1
    return result.ids.tolist(), has_unknown, kernels.launches


@settings(max_examples=200)
@given(
    vocabulary=character_vocabularies() | kmer_vocabularies(),
    texts=st.lists(SEQUENCES, max_size=6),
    wide=st.booleans(),
    extra=st.integers(0, 2),
    prefix=st.sampled_from([(), (90,), (90, 91)]),
    suffix=st.sampled_from([(), (92,)]),
    side=st.sampled_from(["left", "right"]),
)
def test_any_rows_have_the_ids_of_torchs_look_up(
    vocabulary, texts, wide, extra, prefix, suffix, side
):
    rule = read_letter_rule(vocabulary)
    if not isinstance(rule, str):
        dtype = torch.int64 if wide else torch.int32
        batch = Batch.from_bytes([text.encode() for text in texts])
        layout = RowLayout(77, BeginEndTokens(prefix, suffix), side)
        look_up_and_check(rule, batch, dtype, extra, layout)


@pytest.mark.parametrize("is_pinned", [True, False])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("begin", [0, 1, 2, 3, 7])
def test_rows_of_one_length_are_read_from_where_they_lie(monkeypatch, is_pinned, dtype, begin):
    """Wherever that is, and however many letters there are behind the last word of four."""
    monkeypatch.setattr(pinned_text, "is_pinned", lambda data: is_pinned)
    monkeypatch.setattr(pinned_text, "PIECE_BYTES", 4096)
    rule = read_letter_rule(load("hyenadna"))
    letters = np.frombuffer(b"ACGTN", np.uint8)
    for rows, length in ((1, 1), (3, 1), (5, 7), (2, 2048), (70, 150), (9, 4099)):
        text = np.random.default_rng(rows).choice(letters, begin + rows * length)
        batch = Batch(data=text[begin:], offsets=np.arange(0, rows * length + 1, length))
        ids, _, launches = look_up_and_check(rule, batch, dtype)
        assert ids == rule.codes[text[begin:]].reshape(rows, length).tolist()
        pieces = 1 if is_pinned else -(-rows * length // 4096)
        assert launches == ["look_up_flat"] * pieces


def test_a_letter_without_a_code_is_seen_anywhere():
    rule = read_letter_rule(load("nt_v2"))
    for text in ("N", "ACGTACN", "ACGTANACGTAC", "ACGTACGTACGT?"):
        _, seen, launches = look_up_and_check(
            rule, Batch.from_bytes([b"ACGTAC", text.encode(), b"A"])
        )
        assert (seen, launches) == (True, ["look_up_rows"])


def test_a_mark_of_one_batch_is_not_read_by_the_next(monkeypatch):
    """This includes so many later batches that their marks have the same place."""
    monkeypatch.setattr(kernel_lookup, "NUM_MARKS", 2)
    rule = read_letter_rule(load("nt_v2"))
    for text in (b"ACGTN", b"ACGTACGT", b"ACGTACGT", b"ACGN", b"ACGTAC", b"N", b"N", b"ACG"):
        _, seen, _ = look_up_and_check(rule, Batch.from_bytes([text]))
        assert seen == (b"N" in text)


def test_python_and_the_kernels_mean_the_same_blocks():
    assert library().flat_bytes() == kernel_lookup.FLAT_BYTES


def test_a_mark_is_not_taken_back_by_later_batches():
    """One that gets its place does not take it back, and has letters of its own."""
    waiting = kernel_lookup.next_mark()
    for _ in range(kernel_lookup.NUM_MARKS):
        later = kernel_lookup.next_mark()
    assert waiting.address == later.address
    assert not waiting.is_set() and not later.is_set()
    place = waiting.number % kernel_lookup.NUM_MARKS
    for number, are_set in ((waiting.number, (True, False)), (later.number, (True, True))):
        kernel_lookup.get_batch_marks()[place] = number
        assert (waiting.is_set(), later.is_set()) == are_set
    cpu = torch.device("cpu")
    row_ids = SequenceIds(
        discover(load("hyenadna")), RowLayout(4), cpu, torch.int64, torch.int64, None
    )
    looked_up = replace(row_ids.look_up(Batch(["ACGT"]), "bytes"), has_unknown=waiting.is_set)
    ids, counts, upstream = row_ids.finish(looked_up)
    assert (ids.tolist(), counts.tolist(), len(upstream)) == ([[7, 8, 9, 10]], [4], 0)
