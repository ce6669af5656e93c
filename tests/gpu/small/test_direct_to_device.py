"""Few k-mers straight to the caller's memory of the device: the ids of batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu import streaming
from gpu.errors import NotCovered
from gpu.small import direct_to_device
from gpu.streaming import encode_stream
from tests.gpu.kmers.test_tiles import own_kmers
from tests.gpu.large.test_encode import DeviceArray, pinned
from tests.gpu.small.test_zero_copy_letters import check, engine_of, rows_of
from tests.support.emulation.device import EmulatedStream
from tests.support.inputs.sequence_strategies import SEQUENCES, kmer_vocabularies
from vocabularies.builtin import load
from vocabularies.model.tables import may_split_kmers


@settings(max_examples=100)
@given(
    vocabulary=kmer_vocabularies(),
    texts=st.lists(SEQUENCES, min_size=1, max_size=6),
    bits=st.sampled_from([16, 32]),
    is_pinned=st.booleans(),
)
def test_any_kmers_have_the_ids_of_batches(vocabulary, texts, bits, is_pinned):
    engine = engine_of("emulated")
    batch = rows_of([text for text in texts if not may_split_kmers(vocabulary, text)])
    try:
        engine.load(vocabulary)
    except NotCovered:
        assume(False)
    data = pinned(engine, batch.data) if is_pinned else batch.data
    check(engine, vocabulary, data, batch.offsets, bits)
    engine.unload(vocabulary.digest)
    if is_pinned:
        engine.device.free_pinned(data)


@pytest.mark.parametrize("text", ["ACG-TAC", "ACG TA-", "ACGTACN" * 3000 + "-", "ACG\u200b"])
def test_a_stream_whose_kmers_may_be_split_is_not_covered(text):
    engine, data = engine_of("emulated"), np.frombuffer(text.encode(), np.uint8)
    for _ in range(2):
        out = DeviceArray(engine.device, 2 * len(data), "<i4")
        with pytest.raises(NotCovered, match="splits k-mers"):
            encode_stream(engine, load("dnabert1_3mer"), data, np.array([0, len(data)]), out)


@pytest.mark.parametrize("name", ["nt_v2", "mtdna6", "dnabert1_6mer"])
@pytest.mark.parametrize("size", [9000, (1 << 19) + 70])
def test_calls_of_all_widths_follow_each_other_in_one_workspace(engine, name, size):
    text = np.random.default_rng(size).choice(np.frombuffer(b"ACGT", np.uint8), size)
    offsets = np.array([0, size // 3, size // 3, size])
    own = pinned(engine, text)
    for data in (text, own):
        for bits in (32, 16):
            check(engine, load(name), data, offsets, bits)
    engine.device.free_pinned(own)


def test_ids_are_not_copied_and_are_waited_for_once(monkeypatch):
    engine, waits, copies = engine_of("emulated"), [], []
    text = np.frombuffer(b"ACGTAC" * 50, np.uint8)
    out = DeviceArray(engine.device, len(text), "<i4")
    encode_stream(engine, load("nt_v2"), text, np.array([0, 300]), out)
    for name, seen in (("synchronize", waits), ("copy_out", copies)):
        run = getattr(EmulatedStream, name)

        def note(stream, *arguments, run=run, seen=seen):
            seen.append(arguments)
            return run(stream, *arguments)

        monkeypatch.setattr(EmulatedStream, name, note)
    encode_stream(engine, load("nt_v2"), text, np.array([0, 300]), out)
    assert (len(waits), copies) == (1, [])


def test_what_is_not_plain_goes_the_usual_way(engine, monkeypatch):
    answers, run = [], direct_to_device.encode_direct

    def note(*arguments):
        answers.append(run(*arguments))
        return answers[-1]

    monkeypatch.setattr(streaming, "encode_direct", note)
    plain, broken = rows_of(["ACGTACGTAC" * 30, "CAGT"]), rows_of(["ACGTNACGT" * 20, "ACé", "A"])
    for batch in (plain, broken, plain):
        check(engine, load("nt_v2"), batch.data, batch.offsets)
    assert [answer is None for answer in answers] == [False, True, False]


@pytest.mark.parametrize("place", ["host", "device"])
def test_a_row_that_is_no_circle_is_refused_by_its_number(engine, place):
    """Behind rows that are some, in a later chunk; and nothing of it is left for the next call."""
    vocabulary = own_kmers(6, 1, "drop", "append", "ACGT")
    fine, short = rows_of(["ACGTACGTAC"] * 9), rows_of(["ACGTACGTAC"] * 9 + ["ACG", "GGGTTTA"])

    def encode(batch):
        size = len(batch.data)
        out = np.zeros(size, np.int32)
        if place == "device":
            out = DeviceArray(engine.device, size, "<i4")
        return encode_stream(engine, vocabulary, batch.data, batch.offsets, out, chunk_bytes=40)

    for _ in range(2):
        encode(fine)
        with pytest.raises(ValueError, match="row 9 is refused"):
            encode(short)
    assert engine.encode(vocabulary, short).errors.keys() == {9}


def test_a_row_with_a_word_that_is_no_kmer_is_refused_by_its_number(engine):
    fine, wrong = rows_of(["ACG CGT", "ACGT"]), rows_of(["ACGT", "ACG CGT", "AC GTT"])
    for batch in (fine, wrong, fine):
        out = np.zeros(len(batch.data), np.int32)
        if batch is wrong:
            with pytest.raises(ValueError, match="row 2 is refused"):
                encode_stream(engine, load("dnabert1_3mer"), batch.data, batch.offsets, out)
        else:
            encode_stream(engine, load("dnabert1_3mer"), batch.data, batch.offsets, out)
