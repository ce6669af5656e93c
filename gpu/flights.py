"""A batch on its way through the device, of which nobody waits for yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.contents import first_kernels, rare_kernels
from gpu.launches import STATUS, checked, launch, pack_rows, status_of
from gpu.memory import Workspace
from gpu.residents import Resident
from gpu.workspaces import Workspaces

__all__ = ["Flight", "start"]

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
BITS_A_WORD = 32


class Flight:
    """Kernels of a batch are queued; see `start`."""

    def __init__(
        self,
        workspaces: Workspaces,
        workspace: Workspace,
        resident: Resident,
        processors: int,
        rows: int,
        id_bits: int,
    ) -> None:
        self._workspaces, self._workspace, self._rows = workspaces, workspace, rows
        self._resident, self._processors = resident, processors
        self._bits = id_bits

    def num_ids(self) -> int:
        """How many ids there are; waits for the kernels.

        Raises:
            DeviceFault: a kernel found itself wrong.
        """
        workspace = self._workspace
        workspace.stream.synchronize()
        status = checked(workspace)
        if self._resident.family.plain and (rare := int(status[STATUS["RARE"]])):
            kernels = rare_kernels(workspace, self._resident, rare, id_bits=self._bits)
            launch(workspace, kernels, self._processors)
            status = status_of(workspace)
            workspace.status[STATUS["RARE"]] = 0
        return int(status[STATUS["NUM_IDS"]])

    def num_bytes(self) -> int:
        """Bytes of the ids in the answer: whole words, but for ids of 16 bits."""
        if self._bits == 16:
            return 2 * self.num_ids()
        return -(-self.num_ids() * self._bits // BITS_A_WORD) * 4

    def land(self, out: NDArray[np.generic]) -> Int64s:
        """Copy the ids to the front of `out` and return int64[B + 1] where each row's begin.

        The copies run on: both are complete when `finish` returns.
        """
        workspace, num_bytes = self._workspace, self.num_bytes()
        field = "ids" if self._bits == BITS_A_WORD else "packed"
        workspace.stream.copy_out(out.ctypes.data, workspace.fields[field], num_bytes)
        offsets = np.empty(self._rows + 1, np.int64)
        place = workspace.fields["id_offsets"]
        workspace.stream.copy_out(offsets.ctypes.data, place, offsets.nbytes)
        return offsets

    def finish(self) -> None:
        """Wait until everything is copied and give the workspace back; also after a failure."""
        self._workspace.stream.synchronize()
        self._workspaces.give(self._workspace)


def start(
    workspaces: Workspaces,
    resident: Resident,
    data: Bytes,
    begins: Int64s,
    processors: int,
    id_bits: int = BITS_A_WORD,
) -> Flight | None:
    """Begin to encode UTF-8 rows, int64[B + 1] begins; None where all workspaces are in flight.

    The vocabulary is in use until the flight has finished, and data, which is copied from where it
    lies, stays as it is; pinned, it overlaps with other flights. `id_bits` are those of an id in
    the answer, see cuda/pack.cuh.
    """
    workspace = workspaces.try_take(len(data), len(begins) - 1, resident.family.layout)
    if workspace is None:
        return None
    flight = Flight(workspaces, workspace, resident, processors, len(begins) - 1, id_bits)
    try:
        pack_rows(workspace, resident, data, begins, processors, staged=False, id_bits=id_bits)
        launch(workspace, first_kernels(resident, id_bits=id_bits), processors)
        status = workspace.fields["status"]
        workspace.stream.copy_out(workspace.status.ctypes.data, status, 64)
    except BaseException:
        flight.finish()
        raise
    return flight
