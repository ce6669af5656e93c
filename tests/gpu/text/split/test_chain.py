"""Start bits of a piece whose windows were encoded apart: a chain that goes backwards sets none."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.kernels.job import constant
from tests.support.emulation.device import emulated_kernels
from tests.support.emulation.kernels import make_job

WINDOW_BYTES, STRIDE = constant("WINDOW_BYTES"), constant("WINDOW_STEP")
NO_PLACE = constant("NO_PLACE")
END = 1000  # Of a piece of three windows.
WINDOW = np.dtype(
    [
        *((name, "<u4") for name in ("begin", "length", "piece", "joint")),
        ("borders", "<u4", WINDOW_BYTES // 32 + 1),
    ]
)


def written(joints: tuple[int, int]) -> tuple[list[int], int, list[list[int]]]:
    """Places of the start bits, whether the piece failed, and the pieces sent on.

    Window w has a border at every place that is w modulo 3; windows 1 and 2 are entered at the
    joints.
    """
    windows = np.zeros(3, WINDOW)
    for number, window in enumerate(windows):
        begin = number * STRIDE
        length = min(WINDOW_BYTES, END - begin)
        borders = (begin + np.arange(32 * len(window["borders"]))) % 3 == number
        borders[length + 1 :] = False
        window["begin"], window["length"] = begin, length
        window["joint"] = (0, *joints)[number]
        window["borders"] = np.packbits(borders, bitorder="little").view(np.uint32)
    counts = np.array([1 << 40 | 3, 0, 0, 0], np.uint64)
    piece, sent = np.array([[0, END, 0, 0]], np.uint32), np.zeros((1, 3), np.uint32)
    starts = np.zeros(END // 64 + 3, np.uint64)
    job = make_job(
        num_bytes=END,
        starts=starts,
        window_counts=counts,
        long_pieces=piece,
        whole_pieces=sent,
        merged_ids=windows.view(np.uint8),
    )
    library = emulated_kernels("split")
    assert library.launch(b"write_borders", 1, constant("BLOCK"), job.ctypes.data) == 0
    places = np.flatnonzero(np.unpackbits(starts.view(np.uint8), bitorder="little"))
    return places.tolist(), int(piece[0, 3]), sent[: int(counts[1]) >> 40, :2].tolist()


def expected(*parts: tuple[int, int]) -> list[int]:
    """The borders of each window in its part."""
    return [p for number, part in enumerate(parts) for p in range(*part) if p % 3 == number]


@pytest.mark.parametrize("joints", [(300, 600), (256, 512), (512, 768), (512, 512)])
def test_each_window_cuts_from_where_it_is_entered_to_where_it_is_left(joints):
    first, second = joints
    assert written(joints) == (expected((0, first), (first, second), (second, END)), 0, [])


@pytest.mark.parametrize("joints", [(513, 600), (300, 769), (300, NO_PLACE)])
def test_a_window_that_is_left_behind_its_end_fails_its_piece(joints):
    _, failed, sent = written(joints)
    assert failed
    assert sent == [[0, END]]


@pytest.mark.parametrize("joints", [(500, 499), (512, 300)])
def test_a_window_that_is_left_before_it_is_entered_fails_its_piece(joints):
    _, failed, sent = written(joints)
    assert failed
    assert sent == [[0, END]]
