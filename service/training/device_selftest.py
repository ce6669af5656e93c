"""Tests whether a GPU learns the same merges as the CPU, on one small corpus."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from gpu.errors import DeviceUnavailable
from gpu.runtime.device import Device
from gpu.training.merger import merger_on
from vocabularies.motifs.bank import Motif, MotifBank
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

NUM_LETTERS = 10_000  # Enough for several tiles of the kernels.
IDS = 40
BANK = MotifBank((Motif("ACGT"), Motif("GGATC", weight=500), Motif("AAAAAA")))


class SelfTestFailed(RuntimeError):
    """A GPU fails, or learns other merges than the CPU; the message says what happened."""


def open_and_test(open_device: Callable[[], Device]) -> Device:
    """Open a device and test trainings on random letters and repeats, with and without motifs.

    Raises:
        DeviceUnavailable: there is no device.
        SelfTestFailed: its kernels do not compile or run, or a merge or a score differs from the
            CPU's.
        OutOfMemory: the device has too little free memory for the test.
    """
    try:
        device = open_device()
        _test(device)
    except (DeviceUnavailable, SelfTestFailed, MemoryError):
        raise
    except Exception as error:  # CUDA's, CuPy's or its compiler's.
        first_line, _, _ = str(error).partition("\n")
        raise SelfTestFailed(f"the GPU fails: {type(error).__name__}: {first_line}") from error
    return device


def _test(device: Device) -> None:
    for options, motifs in (
        (TrainingOptions(IDS), None),
        (TrainingOptions(IDS, penalty_weight=1.0, merge_harmful=True), BANK),
    ):
        expected = train(_corpus(), options, motifs=motifs).merges
        merges = train(_corpus(), options, motifs=motifs, make_merger=merger_on(device)).merges
        if merges == expected:
            continue
        pairs = enumerate(zip(merges, expected, strict=False))
        number = next((i for i, (one, other) in pairs if one != other), min(len(merges), IDS))
        raise SelfTestFailed(f"merge {number} on the GPU differs from that on the CPU")


@functools.cache
def _corpus() -> Corpus:
    """Make three sequences with repeated parts and with runs of one letter that cross tiles."""
    chance = np.random.default_rng(20)
    letters = np.frombuffer(b"ACGT", np.uint8)[chance.integers(0, 4, NUM_LETTERS)]
    letters[3_000:4_000] = letters[7_001:8_001]
    letters[4_001:8_301] = ord("A")
    return Corpus(letters, np.array([0, 2_500, 2_511, NUM_LETTERS]))
