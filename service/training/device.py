"""Chooses whether a training computes on the CPU or on a GPU.

Both learn the same vocabulary; before each training, a GPU must pass a self-test on small corpora.
The choice, its reason, and the result of the self-test are always reported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from gpu.errors import DeviceUnavailable, OutOfMemory
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device
from gpu.training.merger import merger_on
from service.training.device_selftest import SelfTestFailed, open_and_test
from vocabularies.errors import VocabularyError
from vocabularies.training.layout import Layout
from vocabularies.training.merger import CpuMerger, Ids, MakeMerger, Merger
from vocabularies.training.options import TrainingOptions

DeviceName = Literal["auto", "cpu", "cuda"]
AUTO_LETTERS = 4_000_000
"""The smallest corpus, in letters, for which "auto" tries a GPU. For a smaller one, starting the
GPU takes longer than the training on the CPU."""
NO_GPU = (DeviceUnavailable, SelfTestFailed)


class Choice(NamedTuple):
    """The device of a training, and why it was chosen.

    Attributes:
        device: "cpu" or "cuda".
        device_reason: why "auto" chose the CPU; "" otherwise.
        device_selftest: "passed" if the GPU learned the same merges as the CPU, "failed" if not, ""
            if no GPU was tested.
    """

    device: str
    device_reason: str = ""
    device_selftest: Literal["", "passed", "failed"] = ""


Report = Callable[[Choice], object]


def open_cuda(number: int = 0) -> Device:
    """Open a CUDA device by its number, as this process sees it.

    Raises:
        DeviceUnavailable: there is no device, or CuPy is not installed.
    """
    device = CudaDevice(number)
    device.prepare(("training",))
    return device


def choose_merger(
    name: DeviceName, report: Report, memory_share: float = 1.0, gpu: int = 0
) -> MakeMerger:
    """Make the `make_merger` argument of `train`.

    Args:
        name: "cpu"; "cuda"; or "auto": the GPU for corpora of at least AUTO_LETTERS, if it can be
            used.
        report: called once with the choice, before the first merge.
        memory_share: the share of the GPU's free memory that the training may use.
        gpu: the number of the GPU, as this process sees it.

    The returned function raises NO_GPU, OutOfMemory or VocabularyError if `name` is "cuda" and the
    GPU cannot be used.
    """

    def make(layout: Layout, options: TrainingOptions, first: Ids, lengths: list[int]) -> Merger:
        choice = Choice("cpu")
        if name == "auto" and len(first) < AUTO_LETTERS:
            choice = Choice("cpu", f"fewer than {AUTO_LETTERS:,} letters")
        elif name != "cpu":
            selftest: Literal["", "passed"] = ""
            try:
                device = open_and_test(partial(open_cuda, gpu))
                selftest = "passed"
                merger = merger_on(device, memory_share)(layout, options, first, lengths)
            except (*NO_GPU, OutOfMemory, VocabularyError) as error:
                # If the options are wrong, the CPU raises the same error.
                if name == "cuda":
                    raise
                is_faulty = isinstance(error, SelfTestFailed)
                choice = Choice("cpu", str(error), "failed" if is_faulty else selftest)
            else:
                report(Choice("cuda", device_selftest=selftest))
                return merger
        merger = CpuMerger(layout, options, first, lengths)
        report(choice)
        return merger

    return make
