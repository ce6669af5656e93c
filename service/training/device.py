"""What a training computes on: the processor, or a GPU where one is wanted, is there and has room.

Both learn the same vocabulary, which a GPU has to show on small corpora before each training. Which
one it was, why where that was open, and what the GPU showed is always said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from gpu.errors import DeviceUnavailable, OutOfMemory
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device
from gpu.training.merger import merger_on
from service.training.device_selftest import SelfTestFailed, proved_device
from vocabularies.errors import VocabularyError
from vocabularies.training.layout import Layout
from vocabularies.training.merger import CpuMerger, Ids, MakeMerger, Merger
from vocabularies.training.options import TrainingOptions

DeviceName = Literal["auto", "cpu", "cuda"]
AUTO_LETTERS = 4_000_000
"""Letters from which on "auto" asks for a GPU: for 4,096 ids of them an H200 takes 0.25 s, and a
processor over a second, which is what a GPU may take to begin."""
NO_GPU = (DeviceUnavailable, SelfTestFailed)


class Choice(NamedTuple):
    """What a training computes on.

    Attributes:
        device: "cpu" or "cuda".
        device_reason: why "auto" took the processor, or "".
        device_selftest: whether the GPU learnt what the processor learns: "passed", "failed", or ""
            where none was asked or is there.
    """

    device: str
    device_reason: str = ""
    device_selftest: Literal["", "passed", "failed"] = ""


Tell = Callable[[Choice], object]


def open_cuda() -> Device:
    """The first CUDA device.

    Raises:
        DeviceUnavailable: there is none, or CuPy is not installed.
    """
    device = CudaDevice()
    device.prepare(("training",))
    return device


def choose_merger(name: DeviceName, tell: Tell, memory_share: float = 1.0) -> MakeMerger:
    """What `train` is given.

    Args:
        name: "cpu", "cuda", or "auto": the GPU for AUTO_LETTERS and more, if it can.
        tell: called once with what is taken, before the first merge.
        memory_share: part of the GPU's free memory that may be taken.

    What it gives raises NO_GPU, OutOfMemory or VocabularyError where "cuda" is asked for and cannot
    be.
    """

    def make(layout: Layout, options: TrainingOptions, first: Ids, lengths: list[int]) -> Merger:
        choice = Choice("cpu")
        if name == "auto" and len(first) < AUTO_LETTERS:
            choice = Choice("cpu", f"fewer than {AUTO_LETTERS:,} letters")
        elif name != "cpu":
            selftest: Literal["", "passed"] = ""
            try:
                device = proved_device(open_cuda)
                selftest = "passed"
                merger = merger_on(device, memory_share)(layout, options, first, lengths)
            except (*NO_GPU, OutOfMemory, VocabularyError) as error:
                # What is wrong with the options themselves the processor says as well.
                if name == "cuda":
                    raise
                is_faulty = isinstance(error, SelfTestFailed)
                choice = Choice("cpu", str(error), "failed" if is_faulty else selftest)
            else:
                tell(Choice("cuda", device_selftest=selftest))
                return merger
        merger = CpuMerger(layout, options, first, lengths)
        tell(choice)
        return merger

    return make
