"""The GPU engine: encodes and decodes batches on one device.

Computes ids and nothing else: self-tests, fallbacks and routing are the service's. The way of a
batch is decided once, by its size, its vocabulary and what its rows ask for (`Plan`):

    letters     every letter is an id: looked up where the text lies
    fast path   a small batch that asks for ids alone: one launch, in one call of C++
    small       a small batch in a workspace of its own: one launch, or several as one recording
    chunks      all others, and what the ways above leave: several chunks in flight

The kernels of a batch, in this order:

    take in       to the device, hard bits where texts begin, rows that are not UTF-8 noted
    special       hard bits around special tokens
    pretokenize   a start bit for every pretoken
    cut           start bits inside pretokens, at borders of their own encoding
    look up       the id of every piece that is a token; lists of the others
    merge         the ids of the others
    compact       ids one after another, and where each row's begin
    frame         begin and end tokens, truncation, spans
    answer        to host memory
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpu.batch.resources import Resources
from gpu.batch.row_options import NOTHING_ADDED, RowOptions, row_options
from gpu.decode.chunks import Ids
from gpu.decode.decode import decode_rows
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
from gpu.small import one_launch
from gpu.small.call import encode_small
from gpu.small.one_launch import GRID_BYTES, is_fast, kernel_for, size_of
from gpu.small.zero_copy_letters import fetch_batch
from gpu.text.nfc_check import widen_spans
from gpu.vocabulary.cache import Resident, VocabularyCache
from gpu.vocabulary.device_tables import prepare
from vocabularies.batch.batch import Batch, Encoded, Memory, RowError
from vocabularies.batch.shared_rows import SharedRows
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
ANSWER_BYTES = 1 << 30


class Joining:
    """The copy that joins the strings of a batch, which is complete behind the `with` block.

    Chunks of them are on their way already meanwhile. None: there is nothing to wait for.
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
    """Which ways of the above a batch is tried on, in their order; chunks come last.

    Attributes:
        letters: its letters are looked up where they lie.
        fast: it is one call of C++.
        small: it goes through a workspace of its own.
        kernel: does all of it in one launch; "" where there is none.
        validate: rows may not be UTF-8, and must be.
    """

    letters: bool
    fast: bool
    small: bool
    kernel: str
    validate: bool


def plan_of(resources: Resources, resident: Resident, batch: Batch, options: RowOptions) -> Plan:
    """The plan for a batch."""
    letters = bool(resident.family.fetch) and options.is_content
    validate = not (batch.has_texts or resident.family.takes_bytes)
    num_bytes, num_rows = len(batch.data), batch.num_rows
    if options.spans is not None or not resources.workspaces.is_small(num_bytes, num_rows):
        return Plan(letters, fast=False, small=False, kernel="", validate=validate)
    size = size_of(num_bytes, num_rows)
    kernel = "" if options.augmented else kernel_for(resources, resident, size)
    fast = is_fast(kernel, batch, options)
    return Plan(letters, fast, small=True, kernel=kernel, validate=validate)


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
        with Joining(batch, self.host_memory, self.resources.staging):
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
        batch.check_id_dtype(len(vocabulary.tokens))
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
            if encoded.spans is not None and resident.family is COMPOSED:
                widen_spans(encoded.spans, encoded.offsets, batch)
            return encoded

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
        """Ids of shared texts where they are wanted: int64[B + 1]; see `large.ipc_stream`."""
        return encode_shared(self.pipeline, vocabulary, rows)

    def count(self, vocabulary: Vocabulary, batch: Batch) -> tuple[Int64s, dict[int, RowError]]:
        """int64[B]: how many ids `encode` would give each row; and the refused rows."""
        pipeline, resources = self.pipeline, self.resources
        with (
            resources.residents.using(vocabulary) as resident,
            Joining(batch, resources.host_memory, resources.staging) as copy,
        ):
            options = row_options(vocabulary, batch, resident.family)
            plan = plan_of(resources, resident, batch, options)
            if plan.small:  # One launch, ids and all, takes less than many.
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
        """int32[T] and int64[B + 1]: ids of UTF-8 rows, special tokens matched, nothing added.

        What `encode` does without options and errors, for bulk: the bytes are taken as they are,
        and a row that is refused has no ids.
        """
        pipeline, resources = self.pipeline, self.resources
        answer = one_launch.encode_ids(resources, vocabulary.digest, data, offsets)
        if isinstance(answer, tuple):
            return answer
        batch = Batch(data=data, offsets=offsets)
        with resources.residents.using(vocabulary) as resident:
            # Bytes are taken as they are.
            plan = replace(plan_of(resources, resident, batch, NOTHING_ADDED), validate=False)
            if answer is not None:  # The fast path was tried: it says what to begin with.
                plan = replace(plan, fast=False, small=True, kernel=answer)
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
        """The bytes uint8[N] and int64[B + 1] of ids in rows int64[B + 1], and the errors.

        The ids are int32[T], of which half as many bytes go to the device, or int64[T]. Many go in
        chunks, of which several are in flight, and their bytes may lie in pinned memory, which is
        the caller's until they are garbage.

        Raises:
            NotCovered: the kernels cannot compute this vocabulary.
            OutOfMemory: it does not fit.
        """
        return decode_rows(self.pipeline, vocabulary, ids, offsets, skip_special_tokens)


def _encode_small(
    resources: Resources,
    vocabulary: Vocabulary,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    plan: Plan,
) -> Encoded | None:
    """The answer to a small batch; None: no workspace fits, and smaller chunks may."""
    kernel, validate = plan.kernel, plan.validate
    if plan.fast:
        answer = one_launch.encode_batch(resources, resident, kernel, batch, options, validate)
        if isinstance(answer, Encoded):
            return answer
        kernel = answer
    return encode_small(resources, vocabulary, resident, batch, options, kernel, validate=validate)
