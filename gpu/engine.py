"""The GPU engine: encodes and decodes batches on one device.

Computes ids and nothing else: self-tests, fallbacks and routing are the service's. How a batch
goes through the device: `gpu.dispatch`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu import dispatch
from gpu.batch.resources import Resources
from gpu.decode.chunks import Ids
from gpu.decode.decode import decode_rows
from gpu.host.copy_pool import CopyPool
from gpu.large.ipc_stream import encode_shared
from gpu.large.pipeline import Pipeline
from gpu.memory.caller_pinned import CallerPinned, Take
from gpu.memory.ipc import SharedDeviceMemory, SharedHostMemory
from gpu.memory.pinned_pool import PinnedPool
from gpu.memory.workspace_pool import WorkspacePool
from gpu.runtime.device import Device
from gpu.runtime.stage_timer import StageTimes
from gpu.small.one_launch import most_fused_bytes
from gpu.vocabulary.cache import VocabularyCache
from gpu.vocabulary.device_tables import prepare
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.shared_rows import SharedRows
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
ANSWER_BYTES = 1 << 30


class GpuEngine:
    """Encodes and decodes batches on one device; every method may be called from several threads.

    Args:
        device: the device.
        workspace_bytes: device memory for batches in flight.
        vocabulary_bytes: device memory for vocabularies.
        answer_bytes: pinned host memory for answers that are still held; beyond it, and where
            `workspace_bytes` are fewer, answers lie in ordinary memory and take longer.
        take: gives the memory of answers, which is page-locked; None: the device does.

    Attributes:
        device: the device.
        pipeline: takes large batches through it in chunks.
        stage_times: how long the stages of some batches took.

    Raises:
        DeviceUnavailable: the C++ extensions are not built.
    """

    def __init__(
        self,
        device: Device,
        workspace_bytes: int,
        vocabulary_bytes: int | None = None,
        answer_bytes: int = ANSWER_BYTES,
        take: Take | None = None,
    ) -> None:
        info, source = device.info, device if take is None else CallerPinned(device, take)
        self.device, self.stage_times = device, StageTimes()
        self.pipeline = Pipeline(
            Resources(
                device=device,
                processors=info.processors,
                fused_bytes=most_fused_bytes(info),
                residents=VocabularyCache(device, vocabulary_bytes or workspace_bytes, prepare),
                workspaces=WorkspacePool(device, workspace_bytes),
                staging=CopyPool(),
                leases=PinnedPool(source, min(answer_bytes, workspace_bytes)),
                stage_times=self.stage_times,
            )
        )

    @property
    def resources(self) -> Resources:
        """What all calls share."""
        return self.pipeline.resources

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> int:
        """Put a vocabulary on the device; a permanent one is never evicted for another.

        Returns:
            Its bytes there.

        Raises:
            NotCovered: the kernels cannot compute it.
            OutOfMemory: it does not fit.
        """
        return self.resources.residents.load(vocabulary, permanent)

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that are running finish on it."""
        self.resources.residents.unload(digest)

    def is_resident(self, digest: str) -> bool:
        """Whether a vocabulary is on the device now."""
        return digest in self.resources.residents

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8] | None:
        """uint8[num_bytes], pinned, for texts that need no staging; None: too much is lent."""
        return self.resources.host_memory(num_bytes)

    def join(self, batch: Batch) -> None:
        """Join the strings of a batch, if it has such, in pinned memory, by several threads."""
        with dispatch.Joining(batch, self.host_memory, self.resources.staging):
            pass

    def memory(self) -> dict[str, int]:
        """Bytes of the device: all, free, and what workspaces and vocabularies hold."""
        info = self.device.info
        return {
            "total": info.total_bytes,
            "free": info.free_bytes,
            "workspaces": self.resources.workspaces.used_bytes,
            "vocabularies": self.resources.residents.used_bytes,
        }

    @property
    def page_locked_bytes(self) -> int:
        """Memory of the host that is page-locked for the device now, our own and others'."""
        return self.device.page_locked_bytes

    def open_shared(self, handle: bytes, num_bytes: int) -> SharedDeviceMemory:
        """Memory of the device that another process made; raises BadHandle."""
        return SharedDeviceMemory(self.device, handle, num_bytes)

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedHostMemory:
        """A part of a file of memory, page-locked; raises ValueError or OutOfMemory."""
        return SharedHostMemory(self.device, file, offset, num_bytes)

    def close(self) -> None:
        """Give all memory back."""
        self.resources.close()

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of each row; a row that cannot be encoded is refused alone.

        A large batch goes in chunks, of which several are in flight; so one of many rows, or of a
        row that can be cut (`chunks_of`), needs no more memory than there is. Its arrays may lie in
        pinned memory, which is the caller's until they are garbage.

        Raises:
            NotCovered: the kernels cannot compute this vocabulary, or what a row asks for.
            OutOfMemory: a row that cannot be cut does not fit.
            DeviceFault: a kernel found itself wrong.
            ValueError: the vocabulary's ids do not fit in the batch's `id_dtype`.
        """
        return dispatch.encode(self.pipeline, vocabulary, batch)

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
        """Ids of shared texts where they are wanted: int64[B + 1]; see `large.ipc_stream`."""
        return encode_shared(self.pipeline, vocabulary, rows)

    def count(self, vocabulary: Vocabulary, batch: Batch) -> tuple[Int64s, dict[int, RowError]]:
        """int64[B]: how many ids `encode` would give each row; and the refused rows."""
        return dispatch.count(self.pipeline, vocabulary, batch)

    def encode_ids(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s
    ) -> tuple[NDArray[np.int32], Int64s]:
        """int32[T] and int64[B + 1]: ids of UTF-8 rows, special tokens matched, nothing added.

        What `encode` does without options and errors, for bulk: the bytes are taken as they are,
        and a row that is refused has no ids.
        """
        return dispatch.encode_ids(self.pipeline, vocabulary, data, offsets)

    def decode(
        self, vocabulary: Vocabulary, ids: Ids, offsets: Int64s, skip_special_tokens: bool
    ) -> tuple[Bytes, Int64s, dict[int, RowError]]:
        """The bytes uint8[N] and int64[B + 1] of ids in rows int64[B + 1], and the errors.

        The ids are int32[T], of which half as many bytes go to the device, or int64[T]. Many go in
        chunks, of which several are in flight, and their bytes may lie in pinned memory, which is
        the caller's until they are garbage.

        Raises:
            NotCovered: the kernels cannot compute this vocabulary.
            OutOfMemory: it does not fit.
        """
        return decode_rows(self.pipeline, vocabulary, ids, offsets, skip_special_tokens)
