"""What a training computes on: the processor, or a GPU where one is wanted, is there and has room.

Both learn the same vocabulary, which a GPU has to show on small corpora first. Which one it was,
and why where that was open, is always said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gpu.device import CudaDevice, Device, DeviceUnavailable, OutOfMemory
from gpu.training import merger_on
from service.training_selftest import LearnsOtherwise, prove_training
from vocabularies.merger import CpuMerger, Ids, MakeMerger, Merger
from vocabularies.training_layout import Layout
from vocabularies.training_options import TrainingOptions
from vocabularies.vocabulary import VocabularyError

__all__ = ["AUTO_LETTERS", "NO_GPU", "DeviceName", "choose_merger"]

DeviceName = Literal["auto", "cpu", "cuda"]
AUTO_LETTERS = 4_000_000
"""Letters from which on "auto" asks for a GPU, which takes a second to begin: an estimate."""
NO_GPU = (DeviceUnavailable, LearnsOtherwise)
Tell = Callable[[str, str], object]


def open_cuda() -> Device:
    """The first CUDA device.

    Raises:
        DeviceUnavailable: there is none, or CuPy is not installed.
    """
    return CudaDevice(modules=("training",))


def choose_merger(name: DeviceName, tell: Tell, memory_share: float = 1.0) -> MakeMerger:
    """What `train` is given.

    Args:
        name: "cpu", "cuda", or "auto": the GPU for AUTO_LETTERS and more, if it can.
        tell: called once with "cpu" or "cuda", and why "auto" took the processor, or "".
        memory_share: part of the GPU's free memory that may be taken.

    What it gives raises NO_GPU, OutOfMemory or VocabularyError where "cuda" is asked for and cannot
    be.
    """

    def make(layout: Layout, options: TrainingOptions, first: Ids, lengths: list[int]) -> Merger:
        why = ""
        if name == "auto" and len(first) < AUTO_LETTERS:
            why = f"fewer than {AUTO_LETTERS:,} letters"
        elif name != "cpu":
            try:
                device = open_cuda()
                prove_training(device)
                merger = merger_on(device, memory_share)(layout, options, first, lengths)
            except (*NO_GPU, OutOfMemory, VocabularyError) as error:
                # What is wrong with the options themselves the processor says as well.
                if name == "cuda":
                    raise
                why = str(error)
            else:
                tell("cuda", "")
                return merger
        merger = CpuMerger(layout, options, first, lengths)
        tell("cpu", why)
        return merger

    return make
