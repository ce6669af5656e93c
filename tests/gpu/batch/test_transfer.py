"""The kernels and blocks with which a batch is launched, which are the key of a recording."""

from __future__ import annotations

import numpy as np

from gpu.batch.kernel_choice import first_kernels
from gpu.batch.transfer import launch, pack_rows, status_of
from gpu.engine import GpuEngine
from gpu.kernels.catalog import num_blocks
from gpu.kernels.job import STATUS
from tests.support.emulation.device import EmulatedDevice, EmulatedStream
from vocabularies.builtin import load

SIZE = 1 << 17


def test_a_batch_has_the_blocks_of_its_size_up_to_twice_as_many(monkeypatch):
    made, seen = GpuEngine(EmulatedDevice(), 1 << 28), list[int]()
    run = EmulatedStream.launch
    monkeypatch.setattr(
        EmulatedStream,
        "launch",
        lambda stream, kernel, blocks, job: seen.append(blocks) or run(stream, kernel, blocks, job),
    )
    with (
        made.resources.residents.using(load("hyenadna")) as resident,
        made.resources.workspaces.lend(SIZE, 1, resident.family.layout) as workspace,
    ):
        assert workspace.capacity.num_bytes == SIZE
        kernels = first_kernels(workspace, resident)
        # A workspace holds rows that make four times as much work as its text.
        for bases, size in (
            *((1, SIZE // 4), (SIZE // 4, SIZE // 4), (SIZE // 4 + 1, SIZE // 2)),
            *((SIZE // 2, SIZE // 2), (SIZE // 2 + 1, SIZE), (SIZE, SIZE)),
        ):
            offsets = np.array([0, bases])
            for _ in range(4):  # From the third time on it is a recording.
                pack_rows(workspace, resident, np.full(bases, ord("A"), np.uint8), offsets, 2)
                seen.clear()
                launch(workspace, kernels, 2)
                assert seen in ([], [num_blocks(kernels[0], size, 2)])
                assert status_of(workspace)[STATUS["NUM_IDS"]] == bases
        assert len(workspace.recordings) == 3
    assert [num_blocks("write_letters", part, 2) for part in (SIZE // 4, SIZE)] == [8, 32]
