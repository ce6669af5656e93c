"""The host's side of a launch in C++: a workspace's Launcher, and what it returns.

A small batch is one call, from its text to the wait for its kernel (native/fast_launch.cpp). Python
takes ten microseconds for the same, a third of what a text of 200 bytes takes altogether.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from gpu.host.extensions import fast_launch
from gpu.kernels.job import STATUS, WORD

if TYPE_CHECKING:
    from gpu.host._fast_launch import Driver, Launcher

STAGED, IN_PLACE, COPIED = 0, 1, 2
"""Where a kernel finds the text: in the workspace's pinned memory, where it lies, on the device."""
NOT_LAUNCHED, MORE_TO_DO = -1, -2
"""What `Launcher.encode` returns instead of a number of ids.

The arrays are no rows from 0 to the text's end, one behind another, or of other kinds (others say
which); or the kernel was launched, and its status says that there is more to do.
"""


def launcher_of(
    driver: Driver,
    fields: Mapping[str, int],
    *,
    job: NDArray[Any],
    text: NDArray[Any],
    row_begins: NDArray[Any],
    status: NDArray[Any],
    offsets: NDArray[Any],
) -> Launcher:
    """The Launcher of a workspace: its stream's driver, its fields and its pinned arrays."""
    return fast_launch.Launcher(
        driver,
        WORD,
        STATUS,
        fields,
        job=job,
        text=text,
        row_begins=row_begins,
        status=status,
        offsets=offsets,
    )
