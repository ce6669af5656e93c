"""A small batch by C++: native/fast_launch.cpp does all in one call, from the text to the wait.

Python takes ten microseconds for the same, a third of what a text of 200 bytes takes altogether.
Without the extension it does all of it; LAUNCHED_BY says which one it is. Knows no vocabulary.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from gpu.kernels.job import WORD, constant

if TYPE_CHECKING:
    from gpu.memory.workspace import Workspace

try:
    from gpu.host import _fast_launch as native
except ImportError:
    native = None  # type: ignore[assignment]

LAUNCHED_BY = "Python" if native is None else "C++"
STAGED, IN_PLACE, COPIED = 0, 1, 2
"""Where a kernel finds the text: in the workspace's pinned memory, where it lies, on the device."""
NOT_LAUNCHED, SAYS_MORE = -1, -2
"""Instead of a number of ids: the arrays are no rows from 0 to the text's end, one behind another,
or of other kinds (others say which); and: the kernel was launched, and its status has more to say.
"""
WORDS = tuple(
    WORD[name]
    for name in (
        *("host_text", "num_bytes", "num_rows", "row_flags", "row_max_length", "row_refused"),
        *("validates", "leaves", "id_bits", "framed", "answer_ids", "answer_offsets", "host_ids"),
        *("text", "sent_begins", "sent_text", "own_spans", "random_seed", "first_row"),
        "substitution_rate",
    )
)
"""The words of the Job that differ from batch to batch, as Words in native/fast_launch.cpp."""
STATUS_WORDS = tuple(
    constant(f"STATUS_{name}") for name in ("NOT_UTF8", "FAULT", "CUT", "RARE", "NOT_COVERED")
)
FIELDS = (
    *("ids", "framed_ids", "id_offsets", "framed_offsets"),
    *("row_refused", "text", "row_begins"),
)


def launcher_of(workspace: Workspace, by: Any = native) -> Any:
    """A workspace's `_fast_launch.Launcher`; None where its stream or the installation has none."""
    driver = workspace.stream.driver
    if by is None or driver is None:
        return None
    fields = tuple(workspace.fields.get(name, 0) for name in FIELDS)
    arrays = (
        *(workspace.job, workspace.text, workspace.row_begins),
        *(workspace.status, workspace.offsets),
    )
    return by.Launcher(driver, WORDS, STATUS_WORDS, fields, arrays)


def driver_of(stream: int) -> tuple[int, ...] | None:
    """What C++ needs to launch on a stream of the current context; None: the driver is too old.

    The addresses of cuCtxSetCurrent, cuMemcpyHtoDAsync, cuLaunchKernelEx and cuStreamSynchronize,
    the context's and the stream's.
    """
    library = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    try:
        calls = (
            *(library.cuCtxSetCurrent, library.cuMemcpyHtoDAsync_v2),
            *(library.cuLaunchKernelEx, library.cuStreamSynchronize),
        )
    except AttributeError:
        return None
    if library.cuCtxGetCurrent(ctypes.byref(context)) or not context.value:
        return None
    addresses = (ctypes.cast(call, ctypes.c_void_p).value or 0 for call in calls)
    return (*addresses, context.value, stream)
