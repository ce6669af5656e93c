"""With which kernels and how many blocks a batch is launched; recordings are kept by that."""

from __future__ import annotations

import numpy as np

from gpu.batch.plan import first_kernels
from gpu.batch.transfer import STATUS, fetch, launch, pack_rows, status_of
from gpu.engine import GpuEngine
from gpu.kernels.catalog import FEW_BYTES, num_blocks
from gpu.kernels.families import COUNT
from gpu.kernels.job import WORD, constant
from tests.support.emulated_device import EmulatedDevice, EmulatedStream
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
        made.residents.using(load("hyenadna")) as resident,
        made.workspaces.lend(SIZE, 1, resident.family.layout) as workspace,
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


def test_a_batch_of_few_tiles_has_kernels_that_count_and_add_up():
    made, few = GpuEngine(EmulatedDevice(), 1 << 30), {"look_up_few", "merge_few", "compact_few"}
    with (
        made.residents.using(load("gpt2")) as resident,
        made.workspaces.lend(FEW_BYTES + 1, 1, resident.family.layout) as workspace,
    ):
        workspace.words[WORD["num_bytes"]] = FEW_BYTES
        assert few <= {*first_kernels(workspace, resident)}.difference(COUNT)
        counted = {*first_kernels(workspace, resident, count_only=True)}
        assert counted & {*few, *COUNT} == {"look_up_few", "merge_few", "sum_tiles", "row_offsets"}
        workspace.words[WORD["num_bytes"]] = FEW_BYTES + 1
        assert {*COUNT, "look_up", "merge", "compact"} <= {*first_kernels(workspace, resident)}


def test_looking_up_and_merging_count_the_ids_of_each_part_of_few_tiles():
    """As count_tiles does, of words that are tokens, are not, and are long."""
    made, chance = GpuEngine(EmulatedDevice(), 1 << 27), np.random.default_rng(3)
    words = [*load("gpt2").tokens[300:600], b" qzxv" * 5, b" \xe2\xb2\xbe", b"\n" + b" " * 30]
    text = b"".join(chance.choice(np.array(words, object), 5000).tolist())
    with (
        made.residents.using(load("gpt2")) as resident,
        made.workspaces.lend(len(text), 1, resident.family.layout) as workspace,
    ):
        pack_rows(workspace, resident, np.frombuffer(text, np.uint8), np.array([0, len(text)]), 2)
        launch(workspace, first_kernels(workspace, resident), 2)
        units = 8 * -(-len(text) // constant("TILE"))
        counted = fetch(workspace, "tile_counts", np.uint32, units)
        launch(workspace, ("count_tiles",), 2)
        assert counted.tolist() == fetch(workspace, "tile_counts", np.uint32, units).tolist()
        assert counted.sum() == status_of(workspace)[STATUS["NUM_IDS"]]
