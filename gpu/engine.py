"""The GPU engine: a batch through the stages, all on one screen.

    pack          texts joined in pinned host memory, with what each row asks for
    take in       to the device, hard bits where texts begin, rows that are not UTF-8 noted
    special       hard bits around special tokens
    pretokenize   a start bit for every pretoken
    cut           start bits inside pretokens, at borders of their own encoding
    look up       the id of every piece that is a token; lists of the others
    merge         the ids of the others
    compact       ids one after another, and where each row's begin
    frame         begin and end tokens, truncation, spans
    answer        to host memory

Computes ids and nothing else: self-tests, fallbacks and routing are the service's.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.batch.plan import may_be_wrong
from gpu.batch.row_options import NOTHING_ADDED, WITHOUT_TEMPLATE, RowOptions, row_options
from gpu.decode.chunks import Ids
from gpu.decode.decode import decode_rows
from gpu.errors import OutOfMemory
from gpu.host.copy_pool import Staging
from gpu.host.string_join import Joining
from gpu.kernels.families import COMPOSED
from gpu.large.encode import count_large, encode_large
from gpu.large.ipc_stream import encode_shared
from gpu.large.pipeline import Answer, Pipeline
from gpu.memory.caller_pinned import PageLocked, Take
from gpu.memory.ipc import SharedDeviceMemory, SharedHostMemory
from gpu.memory.pinned_pool import Leases
from gpu.memory.workspace_pool import Workspaces
from gpu.runtime.device import Device
from gpu.runtime.stage_timer import StageTimes
from gpu.small.call import SmallCall
from gpu.small.fast_path import Few
from gpu.small.one_launch import FEW, GRID_BYTES, ONE_BLOCK_BYTES, fused_kernel, size_of
from gpu.small.zero_copy_letters import fetch_batch
from gpu.text.nfc_check import widen_spans
from gpu.vocabulary.cache import Resident, Residents
from gpu.vocabulary.device_tables import prepare
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.shared_rows import SharedRows
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
A = TypeVar("A", bound=Answer)
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
        fused_bytes: text of the largest batch whose stages are one launch.
        stage_times: how long the stages of some batches took.
    """

    def __init__(
        self,
        device: Device,
        workspace_bytes: int,
        vocabulary_bytes: int | None = None,
        answer_bytes: int = ANSWER_BYTES,
        take: Take | None = None,
    ) -> None:
        self.device, info = device, device.info
        self.processors = info.processors
        self.fused_bytes = GRID_BYTES if info.has_clusters else ONE_BLOCK_BYTES
        self.workspaces = Workspaces(device, workspace_bytes)
        self.staging = Staging()
        source = device if take is None else PageLocked(device, take)
        self.leases = Leases(source, min(answer_bytes, workspace_bytes))
        self.stage_times = StageTimes()
        self.pipeline = Pipeline(self.workspaces, self.staging, self.processors, self.stage_times)
        self.residents = Residents(device, vocabulary_bytes or workspace_bytes, prepare)
        self.few = Few(
            *(self.residents, self.workspaces, self.stage_times),
            *(info.processors, info.has_clusters),
        )

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> int:
        """Put a vocabulary on the device, pinned if it is never to make room for another.

        Returns:
            Its bytes there.

        Raises:
            NotCovered: the kernels cannot compute it.
            OutOfMemory: it does not fit.
        """
        return self.residents.load(vocabulary, pinned)

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that are running finish on it."""
        self.residents.unload(digest)

    def is_resident(self, digest: str) -> bool:
        """Whether a vocabulary is on the device now."""
        return digest in self.residents

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8] | None:
        """uint8[num_bytes], pinned, for texts that need no staging; None: too much is lent."""
        block = self.leases.take(num_bytes)
        return None if block is None else block[:num_bytes]

    def join(self, batch: Batch) -> None:
        """Join the strings of a batch, if it has such, in pinned memory, by several threads."""
        with Joining(batch, self.host_memory, self.staging):
            pass

    def memory(self) -> dict[str, int]:
        """Bytes of the device: all, free, and what workspaces and vocabularies hold."""
        info = self.device.info
        return {
            "total": info.total_bytes,
            "free": info.free_bytes,
            "workspaces": self.workspaces.used_bytes,
            "vocabularies": self.residents.used_bytes,
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
        self.residents.close()
        self.workspaces.close()
        self.leases.close()
        self.staging.close()

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
        batch.check_id_dtype(len(vocabulary))
        with (
            self.residents.using(vocabulary) as resident,
            Joining(batch, self.host_memory, self.staging) as copy,
        ):
            options = row_options(vocabulary, batch, resident.family)
            is_small = self.workspaces.is_small(len(batch.data), len(batch))
            if copy is not None and (is_small or resident.family.fetch):
                copy.wait(len(batch.data))
            encoded = fetch_batch(self, resident, batch, options)
            validate = may_be_wrong(resident, batch)
            if encoded is None:
                encoded = self._try_small(vocabulary, resident, batch, options, validate=validate)
            if encoded is None:
                encoded = encode_large(
                    self, vocabulary, resident, batch, options, validate=validate, copy=copy
                )
            if encoded.spans is not None and resident.family is COMPOSED:
                widen_spans(encoded.spans, encoded.offsets, batch)
            return encoded

    def _try_small(
        self,
        vocabulary: Vocabulary,
        resident: Resident,
        batch: Batch,
        options: RowOptions,
        *,
        validate: bool,
        fused: str | None = None,
    ) -> Encoded | None:
        """The answer to a batch that is small, in one workspace; None: it goes in chunks.

        `fused` is the kernel that does all of it, "" where there is none; None: it is looked for.
        """
        size = len(batch.data), len(batch)
        if options.spans is not None or not self.workspaces.is_small(*size):
            return None
        if fused is None:
            fused = self.fused_kernel(resident, batch, options)
            if fused in FEW and (options.is_default or batch.options == WITHOUT_TEMPLATE):
                answer = self.few.encode_batch(resident, fused, batch, options, validate)
                if isinstance(answer, Encoded):
                    return answer
                fused = answer
        try:
            workspace = self.workspaces.take(*size, resident.family.layout)
        except OutOfMemory:
            return None  # Smaller chunks may fit.
        with SmallCall(self, vocabulary, workspace, resident, batch, options, validate) as call:
            return call.encode(fused)

    def fused_kernel(self, resident: Resident, batch: Batch, options: RowOptions) -> str:
        """The kernel that does all of a batch; "" where there is none."""
        size = size_of(batch)
        if not resident.is_fused or options.turned or size > self.fused_bytes:
            return ""
        return fused_kernel(resident.family, size)

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
        """Ids of shared texts where they are wanted: int64[B + 1]; see `large.ipc_stream`."""
        return encode_shared(self, vocabulary, rows)

    def count(self, vocabulary: Vocabulary, batch: Batch) -> tuple[Int64s, dict[int, RowError]]:
        """int64[B]: how many ids `encode` would give each row; and the refused rows."""
        with (
            self.residents.using(vocabulary) as resident,
            Joining(batch, self.host_memory, self.staging) as copy,
        ):
            options = row_options(vocabulary, batch, resident.family)
            validate = may_be_wrong(resident, batch)
            if copy is not None and self.workspaces.is_small(len(batch.data), len(batch)):
                copy.wait(len(batch.data))
            encoded = self._try_small(vocabulary, resident, batch, options, validate=validate)
            if encoded is not None:  # One launch, ids and all, takes less than many.
                return np.diff(encoded.offsets), encoded.errors
            return count_large(self, vocabulary, resident, batch, options, copy=copy)

    def encode_ids(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s
    ) -> tuple[NDArray[np.int32], Int64s]:
        """int32[T] and int64[B + 1]: ids of UTF-8 rows, special tokens matched, nothing added.

        What `encode` does without options and errors, for bulk: the bytes are taken as they are,
        and a row that is refused has no ids.
        """
        answer = self.few.encode_ids(vocabulary.digest, data, offsets)
        if isinstance(answer, tuple):
            return answer
        batch = Batch(data=data, offsets=offsets)
        with self.residents.using(vocabulary) as resident:
            encoded = fetch_batch(self, resident, batch, NOTHING_ADDED)
            if encoded is None:
                encoded = self._try_small(
                    vocabulary, resident, batch, NOTHING_ADDED, validate=False, fused=answer
                )
            if encoded is None:
                encoded = encode_large(
                    self, vocabulary, resident, batch, NOTHING_ADDED, validate=False
                )
            return encoded.ids.astype(np.int32, copy=False), encoded.offsets

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
        with self.residents.using(vocabulary) as resident:
            return decode_rows(self, resident, len(vocabulary), ids, offsets, skip_special_tokens)
