"""Learning on a device makes the merges of Algorithm 1 and of NumPy's trainer, figures included."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.errors import OutOfMemory
from gpu.kernels.job import CUDA
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device
from gpu.training import device_corpus
from gpu.training import merger as training
from gpu.training.merger import DeviceMerger, merger_on
from tests.support.compiled import EMULATION_FLAGS, compiled
from tests.support.each_device import DEVICES, new_device
from tests.support.emulation.device import (
    EMULATION,
    ONE_KERNEL,
    EmulatedDevice,
    EmulatedStream,
)
from tests.support.training.textbook import textbook
from tests.vocabularies.training.test_train import BANKS, OPTIONS, ROWS, assert_equal, row_spans
from vocabularies.errors import VocabularyError
from vocabularies.motifs.bank import Motif, MotifBank
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import Training, train

BLOCK = 256
RUNS = st.lists(st.tuples(st.sampled_from("ACGTN"), st.integers(1, 60)), max_size=6).map(
    lambda runs: "".join(letter * number for letter, number in runs)
)
ANY_ROWS = (st.lists(RUNS, max_size=3) | ROWS).filter(any)


@pytest.fixture(params=DEVICES)
def device(request) -> Device:
    return new_device(request.param)


def tiles_of(device: Device, threads: int):
    """Makes mergers whose tiles have so many threads."""

    def make(layout, options, first, lengths):
        return DeviceMerger(device, layout, options, first, lengths, threads)

    return make


def outcome(training: Training) -> tuple:
    return training.merges, training.ending, training.compression, training.vocabulary.digest


def check(device: Device, corpus: Corpus, options: TrainingOptions, threads=BLOCK, **more) -> None:
    learnt = train(corpus, options, **more, make_merger=tiles_of(device, threads))
    assert outcome(learnt) == outcome(train(corpus, options, **more))
    if isinstance(device, EmulatedDevice):
        assert (device.used_bytes, device.pinned) == (0, {})


@settings(max_examples=60)
@given(ANY_ROWS, st.none() | BANKS, OPTIONS, st.integers(1, 3), st.data())
def test_training_equals_the_textbook(rows, bank, options, threads, data):
    corpus = Corpus.of(rows)
    size = len(corpus.data)
    numbers = st.lists(st.sampled_from([0, 300, 1000]), min_size=size, max_size=size)
    confidence = data.draw(st.none() | numbers.map(lambda values: np.array(values, np.int64)))
    device, more = EmulatedDevice(), {"motifs": bank, "confidence": confidence}
    learnt = train(corpus, options, **more, make_merger=tiles_of(device, threads))
    expected = textbook(rows, "ACGT", row_spans(corpus, bank, options, confidence), options)
    assert_equal(learnt, expected)
    assert learnt.compression == size / max(1, sum(map(len, expected.rows)))
    check(device, corpus, options, threads, **more)


@settings(max_examples=25)
@given(
    ANY_ROWS,
    st.none() | BANKS,
    OPTIONS,
    st.integers(1, 3),
    st.sampled_from([26, 196, 1016]),
    st.sampled_from(["global", "span_preserving"]),
    st.data(),
)
def test_ids_beyond_those_that_a_block_adds_up_itself(
    rows, bank, options, threads, num_special, merge_rule, data
):
    """A block has sums of its own for the first 32 ids, or 204, or 1,024."""
    corpus = Corpus.of(rows)
    counts = data.draw(st.none() | st.just(np.arange(len(rows), dtype=np.int64) % 3 + 1))
    fields = {name: getattr(options, name) for name in options.__slots__}
    fields["special_tokens"] = tuple(f"<{i}>" for i in range(num_special))
    fields["vocabulary_size"] += num_special + 6
    if bank is not None and merge_rule == "span_preserving":
        fields |= {"merge_rule": merge_rule, "seed_region": None}
    counted = Corpus(corpus.data, corpus.offsets, counts)
    check(EmulatedDevice(), counted, TrainingOptions(**fields), threads, motifs=bank)


class TurnsStream(EmulatedStream):
    """Merges by several blocks that run by turns."""

    def launch(self, kernel: str, blocks: int, job: int) -> None:
        if kernel not in ("merge_tokens", "merge_placed"):
            super().launch(kernel, blocks, job)
            return
        with ONE_KERNEL:
            merge_by_turns()(kernel == "merge_placed", 4, ctypes.c_void_p(job))


class TurnsDevice(EmulatedDevice):
    def stream(self) -> TurnsStream:
        return TurnsStream(self)


@functools.cache
def merge_by_turns():
    source = f'#define WARPTOK_EMULATION "{EMULATION}"\n'
    source += (EMULATION.parent / "training_turns.cpp").read_text()
    flags = (*EMULATION_FLAGS, f"-I{CUDA}")
    included = (
        EMULATION,
        *sorted((CUDA / "training").glob("*")),
        CUDA / "common/lookback_scan.cuh",
        CUDA / "common/platform.cuh",
    )
    return ctypes.CDLL(str(compiled("training-turns", source, flags, included))).merge_all_by_turns


@settings(max_examples=15)
@given(ANY_ROWS, st.none() | BANKS, OPTIONS, st.integers(1, 2))
def test_blocks_that_wait_for_each_other_make_the_same_merges(rows, bank, options, threads):
    check(TurnsDevice(), Corpus.of(rows), options, threads, motifs=bank)


def genome(number: int, num_bases: int) -> Corpus:
    """Letters of which many repeat, with runs, in a few sequences."""
    chance = np.random.default_rng(number)
    letters = np.frombuffer(b"ACGT", np.uint8)[chance.integers(0, 4, num_bases)]
    for size in (50, 500, num_bases // 10):
        for place, other in chance.integers(0, num_bases - size, (num_bases // size // 4, 2)):
            letters[place : place + size] = letters[other : other + size]
    for place in chance.integers(0, num_bases - 700, 8):
        letters[place : place + chance.integers(2, 700)] = ord("A")
    return Corpus(letters, np.array([0, 1, num_bases // 3, num_bases // 3, num_bases]))


BANK = MotifBank((Motif("ACGTA"), Motif("GGA", weight=500), Motif("TTTT"), Motif("CATCATG")))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"motifs": BANK},
        {"motifs": BANK, "penalty": "binary", "crossing": "any", "merge_harmful": True},
        {"motifs": BANK, "merge_rule": "span_preserving"},
    ],
    ids=["plain", "motifs", "binary", "span_preserving"],
)
def test_many_tiles_of_a_genome(device, more):
    more = dict(more)
    given = {name: more.pop(name) for name in ("motifs",) if name in more}
    is_real = isinstance(device, CudaDevice)
    corpus = genome(len(more), 5_000_000 if is_real else 30_000)
    options = TrainingOptions(3_000 if is_real else 40, motif_weight=1, penalty_weight=0.5, **more)
    check(device, corpus, options, **given)


def test_runs_as_long_as_the_corpus(device):
    """In more tiles than the block has threads that looks for their begins."""
    num_bases = 20_000_000 if isinstance(device, CudaDevice) else 18_000
    letters = np.full(num_bases, ord("A"), np.uint8)
    for offsets, threads in (([], 1), ([4095, num_bases // 2 + 1], BLOCK)):
        corpus = Corpus(letters, np.array([0, *offsets, num_bases]))
        check(device, corpus, TrainingOptions(40, min_frequency=1), threads)


def test_counts_beyond_32_bits(device):
    corpus = Corpus.of(["ACGTACGTAAAAAACGA", "ACGACGGGACCCCC", "TTTACG"])
    counts = np.array([3 << 30, (1 << 34) + 1, 1 << 32])
    counted = Corpus(corpus.data, corpus.offsets, counts)
    check(device, counted, TrainingOptions(14))


def states(path: Path) -> tuple:
    with np.load(path) as arrays:
        first = arrays["first"]
        return str(arrays["header"]), first.dtype, first.tolist(), arrays["merges"].tolist()


@pytest.mark.parametrize("options", [{}, {"stop": "both", "min_compression": 3.0}])
def test_what_one_has_begun_the_other_goes_on_with(device, tmp_path, options, monkeypatch):
    monkeypatch.setattr(training, "PLACED_AT_ONCE", 1000)
    corpus, options = genome(7, 3_000), TrainingOptions(60, motif_weight=1, **options)
    makers = {"cpu": {}, "device": {"make_merger": merger_on(device)}}
    whole = train(corpus, options, motifs=BANK)
    for limit in (0, 3, 11, 20):
        for name, maker in makers.items():
            calls = iter(range(limit))
            part = train(
                corpus,
                options,
                motifs=BANK,
                state=tmp_path / name,
                should_stop=lambda calls=calls: next(calls, None) is None,
                **maker,
            )
            assert part.ending == "stopped"
        assert states(tmp_path / "cpu") == states(tmp_path / "device")
        (tmp_path / "cpu").rename(tmp_path / "both")
        (tmp_path / "device").rename(tmp_path / "cpu")
        (tmp_path / "both").rename(tmp_path / "device")
    for name, maker in makers.items():
        rest = train(corpus, options, motifs=BANK, state=tmp_path / name, **maker)
        assert outcome(rest) == outcome(whole)


def test_what_does_not_fit_is_refused_with_how_much_it_takes(monkeypatch):
    corpus, options = Corpus.of(["ACGT" * 100]), TrainingOptions(1_000)
    device = EmulatedDevice(total_bytes=8_000_000)
    make = merger_on(device)
    with pytest.raises(
        OutOfMemory, match=r"8,0\d\d,\d{3} for the pairs of ids; .* 8,000,000 bytes free$"
    ):
        train(corpus, options, make_merger=make)
    assert (device.used_bytes, device.pinned) == (0, {})
    with pytest.raises(VocabularyError, match="is 65536; a GPU can train at most 65535"):
        train(corpus, TrainingOptions(65_536), make_merger=make)
    monkeypatch.setattr(device_corpus, "MAX_SLOTS", 400)
    train(corpus, TrainingOptions(10), make_merger=make)
    with pytest.raises(VocabularyError, match="402 letters and barriers; a GPU can train on"):
        train(corpus, TrainingOptions(10), make_merger=make, motifs=BANK)
    # Where a compression is to be reached as well there is room for more ids, up to a bound.
    monkeypatch.setattr(training, "MAX_IDS", 11)
    long = TrainingOptions(7, stop="both", min_compression=32.0)
    with pytest.raises(VocabularyError, match="the compression is not reached with 11 ids"):
        train(corpus, long, make_merger=make)
    assert (device.used_bytes, device.pinned) == (0, {})
