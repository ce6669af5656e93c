"""Presents several GPUs as one; a batch goes to the GPU with the fewest bytes in flight.

    batch ──► the GPU with the fewest bytes in flight, of those that have the vocabulary
                │
                ├─ fails ──► another GPU gets the batch; after three failures this one rests
                ├─ hangs ──► its process is killed, and another GPU gets the batch
                ├─ its process ends ──► another GPU gets the batch; the process starts again
                └─ the ids

    out ──► later: load what the others have, compare with the CPU engine ──► back

Each GPU has its own process, engine, memory budget, vocabularies, circuit breaker (member.py) and
threads. The threads load and test vocabularies; the thread that has a batch calls the GPU itself. A
vocabulary is loaded on all GPUs or on none. A GPU whose ids differ in the self-test gets no batches
of that vocabulary.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.errors import (
    BadHandle,
    DeviceLost,
    DeviceUnavailable,
    NotCovered,
    OutOfMemory,
    SharedTooSmall,
)
from gpu.runtime.stage_timer import StageTimes
from service.engines.base import AnswerIds, DeviceMemory, Engine, SelfTest
from service.engines.hybrid.gpu_selftest import Gpu, compare_with_cpu
from service.engines.hybrid.member import PATIENCE_S, REVIVAL_S, Member
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

HANG_S = 10.0  # A call of no bytes that takes longer hangs.
HANG_BYTES_PER_S = 16 << 20  # Far below what the slowest texts take.
REFRESH_HANG_S = 30.0  # A reading of counts that takes longer hangs.
CHECK_PERIOD_S = 1.0
RETRY_S = 60.0  # Before an upload that failed is tried again.
BYTES_PER_ID = 4
HANDLED_ERRORS = (NotCovered, OutOfMemory)
"""Errors that are not failures of the device; the caller handles them."""
SHARED_ERRORS = (*HANDLED_ERRORS, ValueError, IndexError)
Output = TypeVar("Output")
Int64s = NDArray[np.int64]


class SharedVocabulary(NamedTuple):
    """A vocabulary that is on all GPUs, except for excluded ones."""

    vocabulary: Vocabulary
    is_permanent: bool


class AllStageTimes(StageTimes):
    """The times of the stages on all GPUs."""

    def __init__(self, each: Sequence[StageTimes]) -> None:
        super().__init__()
        self._each = each

    def take(self) -> list[tuple[str, float]]:
        """Return the stages and seconds measured since the last call."""
        return [measured for times in self._each for measured in times.take()]


class SeveralGpus:
    """A `service.engines.hybrid.gpu_selftest.Gpu` that consists of several GPUs.

    Args:
        members: the GPUs.
        on_close: called once, when the GPUs are closed.

    It is thread-safe.
    """

    def __init__(
        self, members: Sequence[Member], on_close: Callable[[], None] = lambda: None
    ) -> None:
        self.members = members
        self._on_close = on_close
        self._vocabularies: dict[str, SharedVocabulary] = {}
        self._cpu: Engine | None = None
        self._lock = threading.Lock()
        self._num_calls = 0
        self._stage_times = AllStageTimes([member.gpu.stage_times for member in members])
        self._is_closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="gpu-keeper", daemon=True)
        self._keeper.start()

    # Batches.

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row on the GPU with the fewest bytes in flight."""
        # A call that fails may have joined the texts of its batch.
        return self._run(
            vocabulary.digest, batch.size, lambda gpu: gpu.encode(vocabulary, batch.duplicate())
        )

    def begin_encode(self, vocabulary: Vocabulary, batch: Batch, answer: AnswerIds) -> bool:
        """See `DeviceSharing.begin_encode`; only a GPU with its own process begins batches."""
        digest, num_bytes = vocabulary.digest, batch.size
        if not self.is_resident(digest):
            return False
        try:
            member = self._choose(self.members, digest, num_bytes)
        except DeviceUnavailable:
            return False
        end = member.watch(HANG_S + num_bytes / HANG_BYTES_PER_S)

        def finish(result: Encoded | Exception) -> None:
            self._leave(member, num_bytes, end)
            if isinstance(result, Encoded):
                member.failures_in_row = 0
                answer(result)
                return
            if not isinstance(result, HANDLED_ERRORS):
                member.fail(result)
            answer(None)

        has_begun = False
        try:
            if member.process is not None:
                has_begun = member.process.begin_encode(vocabulary, batch, finish)
        finally:
            if not has_begun:
                member.unwatch(end)
                with self._lock:
                    member.bytes_in_flight -= num_bytes
        return has_begun

    def count(self, vocabulary: Vocabulary, batch: Batch) -> tuple[Int64s, dict[int, RowError]]:
        """Count the ids of each row; return the counts and the errors of refused rows."""
        return self._run(
            vocabulary.digest, batch.size, lambda gpu: gpu.count(vocabulary, batch.duplicate())
        )

    def decode(
        self, vocabulary: Vocabulary, ids: Int64s, offsets: Int64s, skip_special_tokens: bool
    ) -> tuple[NDArray[np.uint8], Int64s, dict[int, RowError]]:
        """Decode each row; return bytes, offsets, and the errors of refused rows."""
        return self._run(
            vocabulary.digest,
            len(ids) * BYTES_PER_ID,
            lambda gpu: gpu.decode(vocabulary, ids, offsets, skip_special_tokens),
        )

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
        """Encode texts in shared memory on the GPU that owns it, and return the offsets of the ids.

        Raises:
            NotCovered: the texts and the ids are on two GPUs, or their GPU cannot compute them now.
        """
        owners = {self._find_owner(each) for each in (rows.text.memory, rows.out)} - {None}
        if len(owners) > 1:
            raise NotCovered("texts and ids are in the memory of different GPUs")
        owner = owners.pop() if owners else None
        if owner is not None and not self._can_compute(owner, vocabulary.digest):
            raise NotCovered(f"{owner.label}, which has the region, cannot compute now")
        return self._run(
            vocabulary.digest,
            len(rows.text),
            lambda gpu: gpu.encode_shared(vocabulary, rows),
            handled=SHARED_ERRORS,
            members=self.members if owner is None else (owner,),
        )

    def _find_owner(self, memory: SharedMemory) -> Member | None:
        """Return the GPU that owns the memory; None for host memory, which all GPUs access."""
        device = getattr(memory, "device", None)
        if not memory.on_device:
            return None
        return next(member for member in self.members if member.gpu.device is device)

    def _run(
        self,
        digest: str,
        num_bytes: int,
        call: Callable[[Gpu], Output],
        handled: tuple[type[Exception], ...] = HANDLED_ERRORS,
        members: Sequence[Member] | None = None,
    ) -> Output:
        """Run a call on the member with the fewest bytes in flight; if it fails, on the next one.

        Args:
            digest: the vocabulary that the call needs.
            num_bytes: the size of the call.
            call: the function to call with the GPU.
            handled: errors that the caller handles, and that are not failures of the GPU.
            members: the members that may run the call; None: all.

        Raises:
            Exception: the error of the last member.
            DeviceUnavailable: no GPU has the vocabulary now.
        """
        remaining = list(self.members if members is None else members)
        while True:
            member = self._choose(remaining, digest, num_bytes)
            end = member.watch(HANG_S + num_bytes / HANG_BYTES_PER_S)
            try:
                output = call(member.gpu)
            except handled:
                raise
            except Exception as error:
                member.fail(error)
                remaining.remove(member)
                if not any(self._can_compute(other, digest) for other in remaining):
                    raise
            else:
                member.failures_in_row = 0
                return output
            finally:
                self._leave(member, num_bytes, end)

    def _choose(self, members: Sequence[Member], digest: str, num_bytes: int) -> Member:
        """Choose the member with the fewest bytes in flight, and add the bytes of a call.

        Raises:
            DeviceUnavailable: no member has the vocabulary now.
        """
        with self._lock:
            able = [member for member in members if self._can_compute(member, digest)]
            if not able:
                raise DeviceUnavailable("no GPU has the vocabulary now")
            member = min(able, key=lambda each: (each.bytes_in_flight, each.last_used))
            self._num_calls += 1
            member.last_used = self._num_calls
            member.bytes_in_flight += num_bytes
        return member

    def _leave(self, member: Member, num_bytes: int, end: float) -> None:
        """Count a call that has returned."""
        member.unwatch(end)
        with self._lock:
            member.bytes_in_flight -= num_bytes
            member.num_batches += 1
            member.num_bytes += num_bytes

    def _can_compute(self, member: Member, digest: str) -> bool:
        return (
            member.state == "ready"
            and digest not in member.refused
            and member.gpu.is_resident(digest)
        )

    # Vocabularies.

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> int:
        """Upload a vocabulary to all GPUs, or to none; return its bytes on one.

        A GPU that fails otherwise is excluded, and loads the vocabulary before it is used again.

        Raises:
            NotCovered: the kernels do not support the vocabulary.
            OutOfMemory: it does not fit on one of the GPUs.
        """
        digest = vocabulary.digest
        with self._lock:
            known = self._vocabularies.get(digest)
            permanent = permanent or (known is not None and known.is_permanent)
        members = [each for each in self._ready() if digest not in each.refused]
        loaded = self._call_each(members, lambda gpu: gpu.load(vocabulary, permanent))
        sizes = [size for size in loaded.values() if isinstance(size, int)]
        if len(sizes) < len(loaded):
            self._raise_unless_out(loaded, digest)
        if not sizes:
            raise DeviceUnavailable("no GPU is ready")
        with self._lock:
            self._vocabularies[digest] = SharedVocabulary(vocabulary, permanent)
        return max(sizes)

    def _raise_unless_out(self, results: Mapping[Member, Any], digest: str) -> None:
        """Raise an error that concerns all GPUs; exclude GPUs that failed for other reasons.

        Raises:
            NotCovered, OutOfMemory: a GPU raised it; the vocabulary is unloaded from all.
            Exception: all GPUs failed.
        """
        errors = {each: error for each, error in results.items() if isinstance(error, Exception)}
        for member, error in errors.items():
            if isinstance(error, HANDLED_ERRORS):
                self.unload(digest)
                raise type(error)(f"{member.label}: {error}") from error
        for member, error in errors.items():
            member.fail(error, at_once=True)
        if len(errors) == len(results):
            raise next(iter(errors.values()))

    def self_test(self, cpu: Engine, vocabulary: Vocabulary) -> SelfTest:
        """Compare the ids of each GPU that is ready with the reference and the CPU engine.

        A GPU that differs while others do not gets no batches of the vocabulary.

        Returns:
            A passed self-test, or the first one if none was passed.

        Raises:
            Exception: all GPUs failed on a text, or one has too little memory.
        """
        self._cpu, digest = cpu, vocabulary.digest
        members = [each for each in self._ready() if digest not in each.refused]
        results = self._call_each(members, lambda gpu: compare_with_cpu(gpu, cpu, vocabulary))
        self._raise_unless_out(results, digest)
        tests = {each: test for each, test in results.items() if isinstance(test, SelfTest)}
        if not tests:
            raise DeviceUnavailable("no GPU is ready")
        passed = [test for test in tests.values() if not test.num_different]
        if not passed:
            return next(iter(tests.values()))
        for member, test in tests.items():
            if test.num_different:
                self._refuse(member, digest, test)
        return passed[0]

    def _refuse(self, member: Member, digest: str, test: SelfTest) -> None:
        logger.error("%s differs on %s: %s", member.label, digest, test.first_difference)
        member.refused.add(digest)
        self._call_each([member], lambda gpu: gpu.unload(digest))

    def unload(self, digest: str) -> None:
        """Forget a vocabulary on all GPUs; calls that are running on it still finish."""
        with self._lock:
            self._vocabularies.pop(digest, None)
        for member in self.members:
            member.refused.discard(digest)
            member.loading.pop(digest, None)
        unloaded = self._call_each(self._ready(), lambda gpu: gpu.unload(digest))
        for member, error in unloaded.items():
            if isinstance(error, Exception):
                member.fail(error, at_once=True)

    def is_resident(self, digest: str) -> bool:
        """Return whether a ready GPU has a vocabulary; start its upload to the GPUs without it."""
        is_on_one = False
        for member in self.members:
            if self._can_compute(member, digest):
                is_on_one = True
            elif member.state == "ready" and digest not in member.refused:
                if digest in self._vocabularies:
                    member.loading.setdefault(digest, float("-inf"))
        return is_on_one

    def _ready(self) -> list[Member]:
        return [member for member in self.members if member.state == "ready"]

    def _call_each(
        self, members: Iterable[Member], call: Callable[[Gpu], Output]
    ) -> dict[Member, Output | Exception]:
        """Run a call on several GPUs at once; return the result or the error of each."""
        futures = {each: each.threads.submit(partial(call, each.gpu)) for each in members}
        end = monotonic() + PATIENCE_S
        results: dict[Member, Output | Exception] = {}
        for member, future in futures.items():
            try:
                results[member] = member.wait_for(future, max(0.0, end - monotonic()))
            except Exception as error:
                results[member] = error
        return results

    # GPUs that are out, and what they lack.

    def _keep(self) -> None:
        """Test excluded GPUs, and load missing vocabularies, until closed."""
        while not self._is_closed.wait(CHECK_PERIOD_S):
            try:
                self.check()
            except Exception:  # For example, the system allows no more threads.
                logger.exception("GPUs cannot be checked; they are checked again soon")

    def check(self) -> None:
        """Kill hanging processes, and start due tests, uploads, and readings of counts."""
        now = monotonic()
        for member in self.members:
            member.kill_if_late(now)
            if member.process is not None:
                self._check_process(member, now)
            if member.reviving is not None and not member.reviving.done():
                if now - member.reviving_since > REVIVAL_S and member.process is not None:
                    member.process.kill()
                continue
            if member.state == "resting" and now >= member.retry_at:
                call = partial(self._revive, member)
            elif member.state == "ready" and any(now >= at for at in list(member.loading.values())):
                call = partial(self._load_missing, member)
            else:
                continue
            member.reviving_since = now
            member.reviving = member.threads.submit(call)

    def _check_process(self, member: Member, now: float) -> None:
        """Check whether the process of an idle GPU has ended or hangs."""
        assert member.process is not None
        if member.state != "ready":
            return
        if not member.process.is_alive:
            member.fail(DeviceLost("its process has ended"))
        elif member.refreshing is None or member.refreshing.done():
            member.refreshing_since = now
            member.refreshing = member.threads.submit(member.process.refresh)
        elif now - member.refreshing_since > REFRESH_HANG_S:
            member.hang(member.refreshing)

    def _revive(self, member: Member) -> None:
        """Load the vocabularies of the other GPUs; use a GPU again that passes the self-tests."""
        try:
            vocabularies = self._list_vocabularies()
            if member.process is not None and not member.process.is_alive:
                member.process.restart()
            for known in vocabularies:
                self._load_and_test(member, known)
        except Exception as error:
            member.fail_to_revive(error)
        else:
            member.revive()

    def _load_missing(self, member: Member) -> None:
        """Load vocabularies that a GPU has evicted and that others still have."""
        for digest in list(member.loading):
            member.loading[digest] = monotonic() + RETRY_S
            known = self._vocabularies.get(digest)
            try:
                if known is not None:
                    self._load_and_test(member, known)
                member.loading.pop(digest, None)
            except Exception as error:
                logger.warning("%s could not load %s: %s", member.label, digest, repr(error))

    def _load_and_test(self, member: Member, known: SharedVocabulary) -> None:
        """Load a vocabulary on a GPU and compare its ids; refuse the GPU if they differ."""
        vocabulary = known.vocabulary
        assert self._cpu is not None
        member.gpu.load(vocabulary, known.is_permanent)
        test = compare_with_cpu(member.gpu, self._cpu, vocabulary)
        if test.num_different:
            logger.error("%s differs: %s", member.label, test.first_difference)
            member.refused.add(vocabulary.digest)
            member.gpu.unload(vocabulary.digest)
        elif vocabulary.digest not in self._vocabularies:  # It was unloaded meanwhile.
            member.gpu.unload(vocabulary.digest)

    def _list_vocabularies(self) -> list[SharedVocabulary]:
        """List the vocabularies that any GPU has, including excluded GPUs."""
        with self._lock:
            known = list(self._vocabularies.values())
        gpus = [member.gpu for member in self.members]
        return [
            each for each in known if any(gpu.is_resident(each.vocabulary.digest) for gpu in gpus)
        ]

    # Memory.

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8] | None:
        """Allocate pinned memory, which all GPUs read; None if none is free."""
        for member in sorted(self._ready(), key=lambda each: each.bytes_in_flight):
            if (memory := member.gpu.host_memory(num_bytes)) is not None:
                return memory
        return None

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int = 0) -> DeviceMemory:
        """Open device memory of another process on the GPU that has it.

        Args:
            handle: a cudaIpcMemHandle_t.
            num_bytes: the size of the memory.
            device_id: the number of the device in the client's process; this device is tried first.

        Raises:
            BadHandle: no GPU can open it, or it is smaller.
            DeviceUnavailable: no ready GPU can open it, but an excluded GPU may own the memory.
        """
        members = sorted(self._ready(), key=lambda each: each.number != device_id)
        message = ""
        for member in members:
            opened = self._call_each([member], lambda gpu: gpu.open_shared(handle, num_bytes))
            memory = opened[member]
            if not isinstance(memory, Exception):
                return memory
            if isinstance(memory, SharedTooSmall):
                raise memory
            if not isinstance(memory, BadHandle):
                member.fail(memory)
            message = str(memory)
        if any(member.state != "ready" for member in self.members):
            raise DeviceUnavailable("the memory may belong to a GPU that is not used at the moment")
        raise BadHandle(message)

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory:
        """Page-lock a part of a memory file for all GPUs; raises ValueError or OutOfMemory."""
        for member in self._ready():
            shared = self._call_each([member], lambda gpu: gpu.share_host(file, offset, num_bytes))
            memory = shared[member]
            if not isinstance(memory, Exception):
                self._open_regions()
                return memory
            if isinstance(memory, (OutOfMemory, ValueError, OSError)):
                raise memory
            member.fail(memory)
        raise OutOfMemory("no GPU is ready")

    def _open_regions(self) -> None:
        """Let the processes of all GPUs open the regions of host memory."""
        opening: list[tuple[Member, Future[None]]] = []
        for member in self._ready():
            if member.process is not None:
                opening.append((member, member.threads.submit(member.process.open_regions)))
        for member, future in opening:
            try:
                member.wait_for(future, PATIENCE_S)
            except Exception as error:
                member.fail(error)

    def memory(self) -> dict[str, int]:
        """Return the bytes of all ready GPUs by purpose."""
        total: dict[str, int] = {}
        for member in self._ready():
            for part, num_bytes in member.gpu.memory().items():
                total[part] = total.get(part, 0) + num_bytes
        return total

    @property
    def device(self) -> object:
        """The owner of device memory that the first GPU opens."""
        return self.members[0].gpu.device

    @property
    def page_locked_bytes(self) -> int:
        """The bytes of host memory that are page-locked for any of the GPUs."""
        return sum(member.gpu.page_locked_bytes for member in self.members)

    @property
    def stage_times(self) -> StageTimes:
        """The times of the stages of sampled batches on all GPUs."""
        return self._stage_times

    def close(self) -> None:
        """Release the memory of the GPUs that respond, and end the threads."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        self._keeper.join(PATIENCE_S)
        closing = [member for member in self.members if member.state != "hanging"]
        for member in self.members:
            if member.state == "hanging" and member.process is not None:
                member.process.kill()
                closing.append(member)
        closed = self._call_each(closing, lambda gpu: gpu.close())
        for member, error in closed.items():
            if isinstance(error, Exception):
                logger.warning("%s could not be closed: %r", member.label, error)
        for member in self.members:
            member.threads.close()
        self._on_close()
