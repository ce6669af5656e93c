"""A cache of vocabularies on the device; the least recently used is evicted when memory is short.

An evicted vocabulary is prepared again when it is needed. This module does not depend on batches.

    load ──► on the device ──► evicted or unloaded ──► freed when its last running call is done
                  ▲                     │
                  └──── the next use ───┘
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Condition, Lock, RLock

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory
from gpu.kernels.catalog import modules_of
from gpu.kernels.families import Family, family_on
from gpu.kernels.job import WORD
from gpu.runtime.device import Device
from gpu.vocabulary.device_tables import DeviceTables, prepare
from vocabularies.model.vocabulary import Vocabulary

ALIGNMENT = 256


@dataclass(slots=True, eq=False)
class Resident:
    """A vocabulary on the device.

    Attributes:
        family: the kernels that encode with the vocabulary.
        fields: the values of its Job fields.
        num_rounds: the number of rounds in which special tokens are matched.
        has_whole_only: whether starts from splitting must be told apart from pretoken starts.
        address, num_bytes: its one block of device memory.
        had_breaks: whether breaks, which end a run of letters, were the only reason for fallback
            kernels in the last large batch; then the plain kernels are not tried.
        planned_fallback: where a grid stopped in the last small batch, a key of GOES_ON_FROM: in
            the next one it always stops there, with others queued after it; 0: nowhere.
        parts_skips: the small batches that will still skip the kernel of DNA parts, see SmallCall.
        is_permanent: whether it is never evicted.
        users: the number of calls that use it now.
        is_cached: False once it was unloaded or evicted; then its last user frees it.
        is_fused: whether it has a fused kernel (cuda/text/fused, cuda/dna/parts).
        words: intp[F], the numbers of the Job's 8-byte words that hold the fields.
        values: uint64[F], the fields; a workspace copies all of them at once.
    """

    family: Family
    fields: Mapping[str, int]
    num_rounds: int
    has_whole_only: bool
    address: int
    num_bytes: int
    had_breaks: bool = False
    planned_fallback: int = 0
    parts_skips: int = 0
    is_permanent: bool = False
    users: int = 0
    is_cached: bool = True
    words: NDArray[np.intp] = field(init=False)
    values: NDArray[np.uint64] = field(init=False)
    is_fused: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_fused = bool(self.family.fused or self.family.parts) and self.num_rounds < 2
        self.words = np.array([WORD[name] for name in self.fields], np.intp)
        self.values = np.array(
            [int(value) % (1 << 64) for value in self.fields.values()], np.uint64
        )

    def most_ids(self, num_ids: int, num_rows: int) -> int:
        """Return the most ids of an answer: `num_ids`, and the begin and end tokens of pieces."""
        piece_ids = self.fields.get("piece_ids")
        num_pieces = num_rows + (num_ids // piece_ids if piece_ids else 0)
        return num_ids + num_pieces * (self.fields["num_prefix"] + self.fields["num_suffix"])


class VocabularyCache:
    """The vocabularies of one device; every method is thread-safe.

    Args:
        device: the device.
        budget_bytes: the largest total device memory of all vocabularies.
        prepare: makes the arrays of a vocabulary. This may take a second, as may compiling the
            kernels of its family afterwards; calls for other vocabularies do not wait meanwhile.

    Attributes:
        used_bytes: the device memory that all vocabularies use now.
        num_evicted: the number of vocabularies evicted so far.
    """

    def __init__(
        self,
        device: Device,
        budget_bytes: int,
        prepare: Callable[[Vocabulary, int], DeviceTables] = prepare,
    ) -> None:
        self.device, self.budget_bytes = device, budget_bytes
        self.used_bytes = self.num_evicted = 0
        self._prepare = prepare
        self._seed = secrets.randbits(32)
        self._residents: OrderedDict[str, Resident] = OrderedDict()  # Least recently used first.
        self._making: set[str] = set()
        self._num_removed_in_use = 0
        self._lock, self._uploading = RLock(), Lock()
        self._changed = Condition(self._lock)

    def __contains__(self, digest: str) -> bool:
        return digest in self._residents

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> int:
        """Put a vocabulary on the device unless it is there; return its size there in bytes.

        Args:
            vocabulary: the vocabulary.
            permanent: whether it is never evicted from now on, only unloaded.

        Raises:
            NotCovered: the kernels do not support it.
            OutOfMemory: it does not fit beside the permanent ones.
        """
        with self.using(vocabulary) as resident:
            resident.is_permanent |= permanent
            return resident.num_bytes

    def using(self, vocabulary: Vocabulary) -> _Use:
        """Keep a vocabulary on the device during a `with` block; load it if it is not there.

        Raises:
            NotCovered, OutOfMemory: see `load`.
        """
        return _Use(self, self.take(vocabulary.digest) or self._make(vocabulary))

    def take(self, digest: str) -> Resident | None:
        """Return a vocabulary, which stays until `give`; None if it is not on the device."""
        with self._lock:
            resident = self._residents.get(digest)
            if resident is not None:
                self._residents.move_to_end(digest)
                resident.users += 1
            return resident

    def give(self, resident: Resident) -> None:
        """End the use of a vocabulary that `take` returned."""
        with self._lock:
            resident.users -= 1
            if not resident.is_cached and not resident.users:
                self._num_removed_in_use -= 1
                self._free(resident)

    def unload(self, digest: str) -> None:
        """Remove a vocabulary, permanent or not; running calls still finish with it."""
        with self._lock:
            resident = self._residents.pop(digest, None)
            if resident is not None:
                self._remove(resident)

    def close(self) -> None:
        """Unload all vocabularies."""
        for digest in list(self._residents):
            self.unload(digest)

    def _make(self, vocabulary: Vocabulary) -> Resident:
        digest = vocabulary.digest
        with self._lock:
            while digest in self._making:
                self._changed.wait()
            if (resident := self.take(digest)) is not None:
                return resident
            self._making.add(digest)
        try:
            prepared = self._prepare(vocabulary, self._seed)
            family = family_on(prepared.family, self.device.runs)
            prepared = replace(prepared, family=family)
            self.device.prepare(modules_of(prepared.family.kernels))
            with self._uploading:
                resident = self._upload(prepared)
                with self._lock:
                    self._residents[digest] = resident
            return resident
        finally:
            with self._lock:
                self._making.discard(digest)
                self._changed.notify_all()

    def _upload(self, prepared: DeviceTables) -> Resident:
        """Copy the arrays of a vocabulary to the device; it has one user and is not yet cached."""
        places, size = {}, 0
        for name, array in prepared.arrays.items():
            places[name] = size
            size += (array.nbytes // ALIGNMENT + 1) * ALIGNMENT
        address = self._allocate(size)
        fields = {**prepared.numbers, **{name: address + at for name, at in places.items()}}
        whole_only = bool(prepared.numbers.get("has_whole_only"))
        rounds = prepared.num_rounds
        resident = Resident(prepared.family, fields, rounds, whole_only, address, size, users=1)
        try:
            stream = self.device.stream()
            for name, array in prepared.arrays.items():
                stream.copy_in(fields[name], array.ctypes.data, array.nbytes)
            stream.synchronize()
        except BaseException:
            with self._lock:
                self._free(resident)
            raise
        return resident

    def _allocate(self, num_bytes: int) -> int:
        """Allocate device memory; evict other vocabularies if it is short.

        Raises:
            OutOfMemory: it does not fit beside the permanent ones.
        """
        with self._lock:
            permanent = sum(r.num_bytes for r in self._residents.values() if r.is_permanent)
            message = (
                f"a vocabulary of {num_bytes} bytes beside {permanent} of pinned ones; "
                f"all together may have {self.budget_bytes}"
            )
            if num_bytes + permanent > self.budget_bytes:
                raise OutOfMemory(message)
            while True:
                if self.used_bytes + num_bytes <= self.budget_bytes:
                    with suppress(OutOfMemory):
                        address = self.device.allocate(num_bytes)
                        self.used_bytes += num_bytes
                        return address
                if not self._evict_one():
                    if not self._num_removed_in_use:
                        raise OutOfMemory(message)
                    self._changed.wait()

    def _evict_one(self) -> bool:
        """Evict the least recently used vocabulary, idle ones first; False if there is none."""
        evictable = [digest for digest, each in self._residents.items() if not each.is_permanent]
        idle = [digest for digest in evictable if not self._residents[digest].users]
        for digest in (idle or evictable)[:1]:
            self.num_evicted += 1
            self._remove(self._residents.pop(digest))
            return True
        return False

    def _remove(self, resident: Resident) -> None:
        resident.is_cached = False
        if resident.users:
            self._num_removed_in_use += 1
        else:
            self._free(resident)

    def _free(self, resident: Resident) -> None:
        self.used_bytes -= resident.num_bytes
        self.device.free(resident.address)
        self._changed.notify_all()


class _Use:
    """Keeps a vocabulary on the device during a `with` block; contextlib would be slower."""

    __slots__ = ("_cache", "_resident")

    def __init__(self, cache: VocabularyCache, resident: Resident) -> None:
        self._cache = cache
        self._resident = resident

    def __enter__(self) -> Resident:
        return self._resident

    def __exit__(self, *_: object) -> None:
        self._cache.give(self._resident)
