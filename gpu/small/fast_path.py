"""Small batches that ask for ids and nothing unusual: all that the host does in one call of C++.

Others, and such a batch where its kernel finds that there is more to do, go by way of
`call.SmallCall`, which is all of it where C++ was not built. Here every function that is
called counts: a text of 200 bytes takes the device 25 microseconds, and Python ten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.batch.row_options import RowOptions
from gpu.batch.transfer import ROW_BYTES, TAKE_IN_BYTES, set_fields
from gpu.errors import OutOfMemory
from gpu.host.arrays import address_of
from gpu.host.fast_launch import COPIED, IN_PLACE, MORE_TO_DO, STAGED
from gpu.kernels.catalog import num_blocks
from gpu.kernels.job import STATUS
from gpu.memory.output_buffer import Out
from gpu.memory.workspace_pool import Workspaces
from gpu.runtime.stage_timer import StageTimes
from gpu.small.call import UNTRIED
from gpu.small.one_launch import (
    ALIGNMENT,
    CLUSTER_BYTES,
    FEW,
    FEW_BLOCKS,
    GRID_BYTES,
    ONE_BLOCK_BYTES,
    RARE_RUNS,
    fused_kernel,
)
from gpu.vocabulary.cache import Resident, Residents
from vocabularies.batch.batch import Batch, Encoded

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
Ids = NDArray[Any]
_RARE = STATUS["RARE"]


class Few:
    """An engine's way for small batches; every method may be called from several threads.

    Args:
        residents, workspaces, stage_times: the engine's.
        processors, has_clusters: the device's; without clusters few texts are those of one block.
    """

    def __init__(
        self,
        residents: Residents,
        workspaces: Workspaces,
        stage_times: StageTimes,
        processors: int,
        has_clusters: bool,
    ) -> None:
        self.residents, self.workspaces = residents, workspaces
        self.stage_times, self.processors = stage_times, processors
        self.most_bytes = CLUSTER_BYTES if has_clusters else ONE_BLOCK_BYTES
        self.fused_bytes = GRID_BYTES if has_clusters else ONE_BLOCK_BYTES

    def encode_ids(
        self, digest: str, data: Bytes, offsets: Int64s
    ) -> tuple[Ids, Int64s] | str | None:
        """As `GpuEngine.encode_ids`; or a kernel, as from `encode`; None: nothing was tried."""
        if not are_arrays(data, offsets):
            return None
        size = max(len(data), ROW_BYTES * (len(offsets) - 1))
        if size > self.most_bytes:
            return None
        resident = self.residents.take(digest)
        if resident is None:
            return None
        try:
            kernel = fused_kernel(resident.family, size) if resident.is_fused else ""
            if kernel not in FEW:
                return None
            return self.encode(resident, kernel, data, offsets)
        finally:
            self.residents.give(resident)

    def encode_batch(
        self, resident: Resident, kernel: str, batch: Batch, options: RowOptions, validate: bool
    ) -> Encoded | str:
        """The answer to a batch with the default options, or without begin and end tokens.

        Or a kernel, as from `encode`.
        """
        answer = self.encode(
            *(resident, kernel, batch.data, batch.offsets),
            framed=options.framed,
            validate=validate,
            id_dtype=batch.id_dtype,
        )
        return answer if isinstance(answer, str) else Encoded(*answer, engine="gpu")

    def encode(
        self,
        resident: Resident,
        kernel: str,
        data: Bytes,
        offsets: Int64s,
        *,
        framed: bool = False,
        validate: bool = False,
        id_dtype: type[np.integer[Any]] = np.int32,
    ) -> tuple[Ids, Int64s] | str:
        """Ids of rows and where each row's begin, by a kernel of `one_launch.FEW`.

        Or the kernel that the usual way begins with: "" where this one was launched and left the
        batch to single launches.
        """
        if self.stage_times.is_next:
            return kernel
        workspaces, rows = self.workspaces, len(offsets) - 1
        try:
            workspace = workspaces.take(len(data), rows)
        except OutOfMemory:
            return kernel
        try:
            launcher, ids = workspace.launcher, workspace.ids
            if workspace.resident is not resident:
                set_fields(workspace, resident)
            if id_dtype is not np.int32:
                ids = ids.view(id_dtype)
            asked = framed, validate, 8 * ids.itemsize, workspace.ids_place
            function = workspace.stream.kernel(kernel)
            num_ids = launcher.encode(function, FEW_BLOCKS[kernel], data, STAGED, offsets, *asked)
            if num_ids >= 0:
                self.stage_times.count()
                return ids[:num_ids].copy(), workspace.offsets[: rows + 1].copy()
            return "" if num_ids == MORE_TO_DO and workspace.reported[_RARE] else kernel
        finally:
            workspaces.give(workspace)

    def encode_to(self, digest: str, data: Bytes, offsets: Int64s, out: Out) -> Int64s | str | None:
        """Ids of rows to memory that kernels reach; int64[B + 1], where each row's begin.

        Or, where there is more to do, "" if a kernel of `one_launch.FEW` left it to single
        launches, else None; what lies there then may not be used.
        """
        if not are_arrays(data, offsets):
            return None
        num_bytes, num_rows = len(data), len(offsets) - 1
        has_room = num_bytes * out.item_bytes <= out.num_bytes
        if not has_room or out.is_ordinary or not self.workspaces.is_small(num_bytes, num_rows):
            return None
        resident = self.residents.take(digest)
        if resident is None:
            return None
        try:
            size = max(num_bytes, ROW_BYTES * num_rows)
            kernel, way = self._kernel_for(resident, data, size)
            if not kernel or self.stage_times.is_next:
                return None
            return self._launch_to(resident, kernel, way, data, offsets, size, out)
        except OutOfMemory:
            return None  # Smaller chunks may fit.
        finally:
            self.residents.give(resident)

    def _kernel_for(self, resident: Resident, data: Bytes, size: int) -> tuple[str, int]:
        """One that does all of a batch, and where it finds the text; "" where there is none."""
        family = resident.family
        if not resident.is_fused or size > self.fused_bytes:
            return "", STAGED
        if family.bases and not resident.bases_untried:
            is_there = self.workspaces.device.is_pinned(data) and not address_of(data) % ALIGNMENT
            return (family.bases, IN_PLACE) if is_there else ("", STAGED)
        if FEW.isdisjoint(family.fused):
            return "", STAGED
        kernel = fused_kernel(family, size)
        if kernel in FEW:
            return kernel, STAGED
        if resident.grid_leaves or not self.workspaces.device.is_pinned(data):
            return "", STAGED
        if len(data) > TAKE_IN_BYTES:
            return kernel, COPIED
        return ("", STAGED) if address_of(data) % ALIGNMENT else (kernel, IN_PLACE)

    def _launch_to(
        self,
        resident: Resident,
        kernel: str,
        way: int,
        data: Bytes,
        offsets: Int64s,
        size: int,
        out: Out,
    ) -> Int64s | str | None:
        workspaces, rows = self.workspaces, len(offsets) - 1
        workspace = workspaces.take(len(data), rows, resident.family.layout)
        try:
            if workspace.resident is not resident:
                set_fields(workspace, resident)
            blocks = FEW_BLOCKS.get(kernel) or num_blocks(kernel, size, self.processors)
            asked = False, False, 8 * out.item_bytes, out.address
            function = workspace.stream.kernel(kernel)
            num_ids = workspace.launcher.encode(function, blocks, data, way, offsets, *asked)
            if num_ids >= 0:
                self.stage_times.count()
                return workspace.offsets[: rows + 1].copy()
            rare = workspace.reported[_RARE] if num_ids == MORE_TO_DO else 0
            return self._left(resident, kernel, rare)
        finally:
            workspaces.give(workspace)

    def _left(self, resident: Resident, kernel: str, rare: int) -> str | None:
        """What a kernel left is noted for the usual way, on which this batch goes now."""
        if not rare:
            return None
        if kernel in FEW:
            return ""
        if kernel == resident.family.bases:
            resident.bases_untried = UNTRIED + 1  # SmallCall.encode_bases counts this batch.
        else:
            resident.grid_leaves = rare & RARE_RUNS or rare
        return None


def are_arrays(data: object, offsets: object) -> bool:
    """Whether both are NumPy's; of which kind, C++ looks."""
    return isinstance(data, np.ndarray) and isinstance(offsets, np.ndarray)
