"""The GPU engine: encodes and decodes batches on one device.

The service is responsible for self-tests, fallback to the CPU engine, and routing. A `Plan` decides
once how a batch is encoded, by its size, its vocabulary and its options:

    letters     every letter is an id, looked up without copying the text first
    one call    a small batch that needs only ids: a fused kernel, by one call of C++
    small       another small batch, in one workspace: a fused kernel, or a recording of several
    chunks      all other batches, and those that the ways above could not encode

The kernels of a batch run in this order:

    load          copy to the device, set hard bits where texts begin, check UTF-8
    special       set hard bits around special tokens
    pretokenize   set a start bit at every pretoken
    split         set start bits inside pretokens, at certain token borders
    look up       find the id of every piece that is a token, list the other pieces
    merge         compute the ids of the other pieces
    compact       write ids one after another, and the offsets of rows
    post-process  add begin and end tokens, truncate, write spans
    answer        copy to host memory
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpu.batch.resources import Resources
from gpu.batch.row_options import NOTHING_ADDED, RowOptions, row_options
from gpu.decode.chunks import Ids
from gpu.decode.decode import decode_rows
from gpu.errors import NotCovered
from gpu.host.copy_pool import Copy, CopyPool
from gpu.kernels.families import COMPOSED
from gpu.large.encode import count_large, encode_large
from gpu.large.ipc_stream import encode_shared
from gpu.large.pipeline import Pipeline
from gpu.memory.caller_pinned import CallerPinned, Take
from gpu.memory.ipc import SharedDeviceMemory, SharedHostMemory
from gpu.memory.pinned_pool import PinnedPool
from gpu.memory.workspace_pool import WorkspacePool
from gpu.runtime.device import Device
from gpu.runtime.stage_timer import StageTimes
from gpu.small import fused
from gpu.small.call import encode_in_workspace
from gpu.small.fused import GRID_BYTES, is_for_one_call, kernel_for, size_of
from gpu.small.zero_copy_letters import fetch_batch
from gpu.text.nfc_check import widen_spans
from gpu.vocabulary.cache import Resident, VocabularyCache
from gpu.vocabulary.device_tables import prepare
from vocabularies.batch.batch import Batch, Encoded, Memory, RowError
from vocabularies.batch.shared_rows import SharedRows
from vocabularies.batch.upper_case import make_upper_case
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
ANSWER_BYTES = 1 << 30


class Joining:
    """Joins the strings of a batch during a `with` block, after which the copy is complete.

    `with` returns the running copy, so that chunks can be encoded meanwhile; None if there is none.
    """

    __slots__ = ("_batch", "_copy", "_memory", "_staging")

    def __init__(self, batch: Batch, memory: Memory, staging: CopyPool) -> None:
        self._batch, self._memory, self._staging = batch, memory, staging
        self._copy: Copy | None = None

    def __enter__(self) -> Copy | None:
        self._batch.join_in(self._memory, self._begin)
        return self._copy

    def _begin(self, texts: tuple[str, ...], offsets: NDArray[np.int64], target: Bytes) -> None:
        self._copy = self._staging.start_gather(texts, offsets, target)

    def __exit__(self, *_: object) -> None:
        if self._copy is not None:
            self._copy.wait(len(self._batch.data))


@dataclass(frozen=True, slots=True)
class Plan:
    """The ways to try for a batch, in the order above; chunks come last.

    Attributes:
        letters: whether letters are looked up without copying the text first.
        one_call: whether one call of C++ is tried.
        small: whether the batch is encoded in one workspace.
        kernel: the fused kernel to try first; "" if there is none.
        validate: whether rows must be checked for UTF-8.
    """

    letters: bool
    one_call: bool
    small: bool
    kernel: str
    validate: bool


def plan_of(resources: Resources, resident: Resident, batch: Batch, options: RowOptions) -> Plan:
    """Make the plan for a batch."""
    letters = bool(resident.family.fetch) and options.is_content
    validate = not (batch.has_texts or resident.family.takes_bytes)
    num_bytes, num_rows = len(batch.data), batch.num_rows
    if options.spans is not None or not resources.workspaces.is_small(num_bytes, num_rows):
        return Plan(letters, one_call=False, small=False, kernel="", validate=validate)
    size = size_of(num_bytes, num_rows)
    kernel = "" if options.augmented else kernel_for(resources, resident, size)
    one_call = is_for_one_call(kernel, batch, options)
    return Plan(letters, one_call, small=True, kernel=kernel, validate=validate)


class GpuEngine:
    """Encodes and decodes batches on one device; every method is thread-safe.

    Args:
        device: the device.
        workspace_bytes: the largest amount of device memory for batches in flight.
        vocabulary_bytes: the largest amount of device memory for vocabularies; None: as for
            workspaces.
        answer_bytes: the largest amount of pinned host memory for answers to which callers have
            references, up to `workspace_bytes`. Further answers are in pageable memory and take
            longer.
        take: allocates the memory of answers, which is then page-locked; None: the device allocates
            it.

    Attributes:
        device: the device.
        pipeline: encodes large batches in chunks.
        stage_times: the measured times of stages.

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
                fused_bytes=GRID_BYTES,
                residents=VocabularyCache(device, vocabulary_bytes or workspace_bytes, prepare),
                workspaces=WorkspacePool(device, workspace_bytes),
                staging=CopyPool(),
                leases=PinnedPool(source, min(answer_bytes, workspace_bytes)),
                stage_times=self.stage_times,
            )
        )

    @property
    def resources(self) -> Resources:
        """The device, memory and threads that all calls share."""
        return self.pipeline.resources

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> int:
        """Put a vocabulary on the device; a permanent one is never evicted for another.

        Returns:
            The number of bytes of device memory that it uses.

        Raises:
            NotCovered: the kernels do not support the vocabulary.
            OutOfMemory: it does not fit beside the permanent ones.
        """
        return self.resources.residents.load(vocabulary, permanent)

    def unload(self, digest: str) -> None:
        """Remove a vocabulary from the device; running calls still finish with it."""
        self.resources.residents.unload(digest)

    def is_resident(self, digest: str) -> bool:
        """Return whether a vocabulary is on the device now."""
        return digest in self.resources.residents

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8] | None:
        """Lease pinned memory for text, uint8[num_bytes]; None if it would exceed the limit."""
        return self.resources.host_memory(num_bytes)

    def join(self, batch: Batch) -> None:
        """Join the strings of a batch, if it has any, in pinned memory, by several threads."""
        with Joining(batch, self.host_memory, self.resources.staging):
            pass

    def memory(self) -> dict[str, int]:
        """Return bytes of device memory: total, free, used by workspaces, by vocabularies."""
        info = self.device.info
        return {
            "total": info.total_bytes,
            "free": info.free_bytes,
            "workspaces": self.resources.workspaces.used_bytes,
            "vocabularies": self.resources.residents.used_bytes,
        }

    @property
    def page_locked_bytes(self) -> int:
        """The bytes of host memory that are page-locked through this device now."""
        return self.device.page_locked_bytes

    def open_shared(self, handle: bytes, num_bytes: int) -> SharedDeviceMemory:
        """Open device memory of another process by its handle; raises BadHandle."""
        return SharedDeviceMemory(self.device, handle, num_bytes)

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedHostMemory:
        """Map a range of a file and page-lock it; raises ValueError or OutOfMemory."""
        return SharedHostMemory(self.device, file, offset, num_bytes)

    def close(self) -> None:
        """Free all memory and end the threads."""
        self.resources.close()

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row of a batch; if a row is refused, the others are still encoded.

        A large batch is encoded in chunks. So the memory of the device limits only the size of rows
        that must not be split (`chunks_of`), not the size of batches. The arrays of the answer may
        be in leased pinned memory, which returns to the pool when they are garbage-collected.

        Raises:
            NotCovered: the kernels do not support the vocabulary or an option.
            OutOfMemory: a row that must not be split does not fit into memory.
            DeviceFault: a kernel detected an inconsistency.
            ValueError: the vocabulary's ids do not fit in the batch's `id_dtype`.
        """
        batch.check_id_dtype(len(vocabulary.tokens))
        batch = make_upper_case(batch)
        pipeline, resources = self.pipeline, self.resources
        with (
            resources.residents.using(vocabulary) as resident,
            Joining(batch, resources.host_memory, resources.staging) as copy,
        ):
            options = row_options(vocabulary, batch, resident.family)
            plan = plan_of(resources, resident, batch, options)
            if copy is not None and (plan.small or plan.letters):
                copy.wait(len(batch.data))
            encoded = None
            if plan.letters:
                encoded = fetch_batch(resources, resident, batch)
            if encoded is None and plan.small:
                encoded = _encode_small(resources, vocabulary, resident, batch, options, plan)
            if encoded is None:
                encoded = encode_large(
                    pipeline,
                    vocabulary,
                    resident,
                    batch,
                    options,
                    validate=plan.validate,
                    copy=copy,
                )
            if encoded.spans is not None and resident.family.name == COMPOSED.name:
                widen_spans(encoded.spans, encoded.offsets, batch)
            return encoded

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
        """Encode texts of another process into its memory; return the offsets int64[B + 1].

        Errors are those of `large.ipc_stream.encode_shared`.
        """
        return encode_shared(self.pipeline, vocabulary, rows)

    def count(self, vocabulary: Vocabulary, batch: Batch) -> tuple[Int64s, dict[int, RowError]]:
        """Count the ids of each row without returning them: int64[B], and the refused rows."""
        batch = make_upper_case(batch)
        pipeline, resources = self.pipeline, self.resources
        with (
            resources.residents.using(vocabulary) as resident,
            Joining(batch, resources.host_memory, resources.staging) as copy,
        ):
            options = row_options(vocabulary, batch, resident.family)
            plan = plan_of(resources, resident, batch, options)
            # A fused kernel is faster than several kernels, although it also computes ids.
            if plan.small:
                if copy is not None:
                    copy.wait(len(batch.data))
                encoded = _encode_small(resources, vocabulary, resident, batch, options, plan)
                if encoded is not None:
                    return np.diff(encoded.offsets), encoded.errors
            return count_large(
                pipeline, vocabulary, resident, batch, options, validate=plan.validate, copy=copy
            )

    def encode_ids(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s
    ) -> tuple[NDArray[np.int32], Int64s]:
        """Encode UTF-8 rows without options and errors; return ids int32[T], offsets int64[B + 1].

        Special tokens are matched and nothing is added. The bytes are not checked for UTF-8, and a
        refused row has no ids.
        """
        pipeline, resources = self.pipeline, self.resources
        answer = fused.encode_ids(resources, vocabulary.digest, data, offsets)
        if isinstance(answer, tuple):
            return answer
        batch = Batch(data=data, offsets=offsets)
        with resources.residents.using(vocabulary) as resident:
            plan = replace(plan_of(resources, resident, batch, NOTHING_ADDED), validate=False)
            if answer is not None:  # One call of C++ was tried; `answer` is the next kernel.
                plan = replace(plan, one_call=False, small=True, kernel=answer)
            encoded = None
            if plan.letters:
                encoded = fetch_batch(resources, resident, batch)
            if encoded is None and plan.small:
                encoded = _encode_small(resources, vocabulary, resident, batch, NOTHING_ADDED, plan)
            if encoded is None:
                encoded = encode_large(
                    pipeline, vocabulary, resident, batch, NOTHING_ADDED, validate=False
                )
            return encoded.ids.astype(np.int32, copy=False), encoded.offsets

    def decode(
        self, vocabulary: Vocabulary, ids: Ids, offsets: Int64s, skip_special_tokens: bool
    ) -> tuple[Bytes, Int64s, dict[int, RowError]]:
        """Decode rows of ids to bytes.

        Args:
            vocabulary: the vocabulary.
            ids: int32[T] or int64[T]; int32 is faster, as half as many bytes are copied.
            offsets: int64[B + 1], where the ids of each row begin.
            skip_special_tokens: whether special tokens are omitted.

        Returns:
            The bytes uint8[N], their offsets int64[B + 1], and the errors of refused rows. The
            bytes may be in leased pinned memory, which returns to the pool when they are
            garbage-collected.

        Raises:
            NotCovered: the kernels do not support the vocabulary.
            OutOfMemory: the batch does not fit into memory.
        """
        if vocabulary.decoder != "inverse":
            raise NotCovered("the tokens are not joined without separators")
        return decode_rows(self.pipeline, vocabulary, ids, offsets, skip_special_tokens)


def _encode_small(
    resources: Resources,
    vocabulary: Vocabulary,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    plan: Plan,
) -> Encoded | None:
    """Encode a small batch; return None if no workspace fits into memory: chunks may fit."""
    kernel, validate = plan.kernel, plan.validate
    if plan.one_call:
        answer = fused.encode_batch(resources, resident, kernel, batch, options, validate)
        if isinstance(answer, Encoded):
            return answer
        kernel = answer
    return encode_in_workspace(
        resources, vocabulary, resident, batch, options, kernel, validate=validate
    )
