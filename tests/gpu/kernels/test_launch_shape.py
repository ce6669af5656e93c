"""The shapes of launches on cards that no test machine has."""

from __future__ import annotations

import pytest

from gpu.kernels.catalog import KERNELS
from gpu.kernels.families import DNA, FAMILIES, TEXT, dna_family, family_on
from gpu.kernels.launch_shape import CLASSES, LaunchShape, launch_shape

COPIED = dna_family(
    has_whole=False, maps=False, walk=("forward_windows_copied",), parts="encode_dna_parts_copied"
)


@pytest.mark.parametrize("limits", CLASSES.values(), ids=str)
def test_every_family_has_kernels_that_each_card_runs(limits):
    for family in (*FAMILIES.values(), COPIED):
        own = family_on(family, limits.runs)
        assert all(limits.runs(kernel) for kernel in own.kernels), family.name
        for kernel in own.kernels:
            shape = launch_shape(KERNELS[kernel], limits)
            assert shape is not None and 32 <= shape.threads <= 1024 and shape.threads % 32 == 0
            assert shape.shared_bytes <= limits.shared_bytes


def test_a_card_of_the_largest_class_runs_all_as_listed():
    for kernel in KERNELS.values():
        assert launch_shape(kernel, CLASSES[227]) == LaunchShape(
            kernel.threads, kernel.shared_bytes
        )
    for family in (TEXT, DNA, COPIED):
        assert family_on(family, CLASSES[227].runs) is family


@pytest.mark.parametrize(
    ("kib", "merge", "fused", "walk", "parts"),
    [
        (64, (224, 62464), ("encode_block", "encode_grid"), "forward_windows", ""),
        (99, (512, 99328), ("encode_block", "encode_grid"), "forward_windows", ""),
        (163, (512, 99328), ("encode_block", "encode_grid"), "forward_windows", ""),
        (
            227,
            (512, 99328),
            ("encode_block", "encode_cluster", "encode_grid"),
            "forward_windows_copied",
            "encode_dna_parts_copied",
        ),
    ],
)
def test_what_each_class_of_cards_runs(kib, merge, fused, walk, parts):
    limits = CLASSES[kib]
    assert launch_shape(KERNELS["merge"], limits) == LaunchShape(*merge)
    assert tuple(dict.fromkeys(family_on(TEXT, limits.runs).fused)) == fused
    dna = family_on(COPIED, limits.runs)
    assert walk in dna.content and dna.parts == parts
