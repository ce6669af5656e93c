"""Makes the Launcher of a workspace, which encodes a small batch by one call of C++.

The call copies the text, launches a kernel and waits for it (native/fast_launch.cpp). Python would
take ten microseconds for this, a third of the whole time of a text of 200 bytes.
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
"""Where a kernel reads the text: the workspace's pinned memory, the caller's, or the device's."""
NOT_LAUNCHED, MORE_TO_DO = -1, -2
"""What `Launcher.encode` may return instead of a number of ids.

NOT_LAUNCHED: the arrays have other dtypes, or the rows do not cover the text in order; other
functions raise the error. MORE_TO_DO: the status of the kernel says that ids are not complete.
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
    """Make a workspace's Launcher from its stream's driver, its fields and its pinned arrays."""
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
