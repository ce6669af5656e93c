"""Sets the class of cards that tests emulate: the shared memory of a block, and the code.

    CARD_CLASS=64 python -m pytest -m gpu                  # a block has 64 KiB
    CARD_CLASS=64 CARD_CODE=75 python -m pytest -m gpu     # and all code is PTX of compute_75

A device of a larger class then runs the kernels of a smaller one, so that one machine tests all.
CARD_CLASS holds for emulated devices, too. Which kernels are launched is tested for the largest
class alone.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from gpu.kernels.launch_shape import CLASSES, DeviceLimits

CARD_CLASS = os.environ.get("CARD_CLASS", "")
CARD_CODE = os.environ.get("CARD_CODE", "")
EMULATED = CLASSES[int(CARD_CLASS or "227")]


def need_largest_class() -> None:
    """Skip a test that names launched kernels, because other cards launch others."""
    if EMULATED != CLASSES[227]:
        pytest.skip("cards of other classes launch other kernels")


def use_card_class(patch: pytest.MonkeyPatch) -> None:
    """Make CUDA devices report CARD_CLASS and run code of CARD_CODE, if these are set."""
    if CARD_CLASS:
        patch.setattr("gpu.runtime.module_loader.limits_of", _limits_of)
    if CARD_CODE:
        patch.setattr("cupy.cuda.compiler._use_ptx", True)
        patch.setattr("cupy.cuda.compiler._get_arch", lambda: CARD_CODE)


def _limits_of(cupy: Any, number: int) -> DeviceLimits:
    return EMULATED
