"""Vocabularies on the device: made once, the least recently used given up when memory is short.

Knows no batch. One that was given up is made again when it is needed.

    load ──► on the device ──► given up or unloaded ──► freed when its last running call is done
                  ▲                     │
                  └──── the next use ───┘
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Lock, RLock

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory
from gpu.kernels.catalog import modules_of
from gpu.kernels.families import Family
from gpu.kernels.job import WORD
from gpu.runtime.device import Device
from gpu.vocabulary.device_tables import Prepared, prepare
from vocabularies.model.vocabulary import Vocabulary

ALIGNMENT = 256


@dataclass(slots=True, eq=False)
class Resident:
    """A vocabulary on the device.

    Attributes:
        family: the kernels that compute it.
        fields: Job fields and what they hold.
        num_rounds: rounds of special tokens.
        has_whole_only: whether starts made by cutting must differ from others.
        address, num_bytes: its one block of device memory.
        meets_breaks: what ends a run of letters was in the last large batch, and nothing else that
            plain kernels leave to others; so they are not tried.
        planned_fallback: where a grid stopped in the last small batch, a key of GOES_ON_FROM: in
            the next one it stops there whatever it finds, with others queued behind; 0: nowhere.
        bases_skips: small batches from now on that are not taken for bases, see SmallCall.
        is_pinned: it is not given up to make room.
        users: calls that use it now.
        wanted: False once it was unloaded or given up; its last user frees it.
        is_fused: a small batch is one launch (cuda/text/one_launch, cuda/dna/parts).
        words: intp[F], which of the Job's 8-byte words the fields are; `values`, uint64[F], are
            what they hold, so that a workspace gets all at once.
    """

    family: Family
    fields: Mapping[str, int]
    num_rounds: int
    has_whole_only: bool
    address: int
    num_bytes: int
    meets_breaks: bool = False
    planned_fallback: int = 0
    bases_skips: int = 0
    is_pinned: bool = False
    users: int = 0
    wanted: bool = True
    words: NDArray[np.intp] = field(init=False)
    values: NDArray[np.uint64] = field(init=False)
    is_fused: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_fused = bool(self.family.fused or self.family.bases) and self.num_rounds < 2
        self.words = np.array([WORD[name] for name in self.fields], np.intp)
        self.values = np.array(
            [int(value) % (1 << 64) for value in self.fields.values()], np.uint64
        )

    def most_ids(self, num_ids: int, num_rows: int) -> int:
        """Ids of an answer at most, begin and end tokens of rows and their pieces included."""
        piece_ids = self.fields.get("piece_ids")
        num_pieces = num_rows + (num_ids // piece_ids if piece_ids else 0)
        return num_ids + num_pieces * (self.fields["num_prefix"] + self.fields["num_suffix"])


class VocabularyCache:
    """The vocabularies of one device; every method may be called from several threads.

    Args:
        device: the device.
        budget_bytes: device memory that all of them may take together.
        prepare: gives a vocabulary's arrays; takes a second, and nobody else waits for it,
            nor for its family's kernels, which are compiled behind it.

    Attributes:
        used_bytes: what they take now.
        num_evicted: how many were given up.
    """

    def __init__(
        self,
        device: Device,
        budget_bytes: int,
        prepare: Callable[[Vocabulary, int], Prepared] = prepare,
    ) -> None:
        self.device, self.budget_bytes = device, budget_bytes
        self.used_bytes = self.num_evicted = 0
        self._prepare = prepare
        self._seed = secrets.randbits(32)
        self._residents: OrderedDict[str, Resident] = OrderedDict()  # Least recently used first.
        self._making: set[str] = set()
        self._num_leaving = 0
        self._lock, self._uploading = RLock(), Lock()
        self._changed = Condition(self._lock)

    def __contains__(self, digest: str) -> bool:
        return digest in self._residents

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> int:
        """Put a vocabulary on the device; returns its bytes there.

        Args:
            vocabulary: the vocabulary; where it is there already, nothing is copied.
            pinned: from now on it stays until it is unloaded.

        Raises:
            NotCovered: the kernels cannot compute it.
            OutOfMemory: it does not fit beside the pinned ones.
        """
        with self.using(vocabulary) as resident:
            resident.is_pinned |= pinned
            return resident.num_bytes

    def using(self, vocabulary: Vocabulary) -> _Use:
        """A vocabulary that stays on the device for a `with` block; loads it if need be.

        Raises:
            NotCovered, OutOfMemory: see `load`.
        """
        return _Use(self, self.take(vocabulary.digest) or self._make(vocabulary))

    def take(self, digest: str) -> Resident | None:
        """A vocabulary that stays until it is given back; None: it is not on the device."""
        with self._lock:
            resident = self._residents.get(digest)
            if resident is not None:
                self._residents.move_to_end(digest)
                resident.users += 1
            return resident

    def give(self, resident: Resident) -> None:
        """Give a vocabulary back that was taken."""
        with self._lock:
            resident.users -= 1
            if not resident.wanted and not resident.users:
                self._num_leaving -= 1
                self._free(resident)

    def unload(self, digest: str) -> None:
        """Forget a vocabulary, pinned or not; calls that use it finish on it."""
        with self._lock:
            resident = self._residents.pop(digest, None)
            if resident is not None:
                self._leave(resident)

    def close(self) -> None:
        """Forget all of them."""
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

    def _upload(self, prepared: Prepared) -> Resident:
        """A resident with one user, not yet known by its digest."""
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
        """Device memory, for which others are given up if need be.

        Raises:
            OutOfMemory: it does not fit beside the pinned ones.
        """
        with self._lock:
            pinned = sum(r.num_bytes for r in self._residents.values() if r.is_pinned)
            message = (
                f"a vocabulary of {num_bytes} bytes beside {pinned} of pinned ones; all together "
                f"may have {self.budget_bytes}"
            )
            if num_bytes + pinned > self.budget_bytes:
                raise OutOfMemory(message)
            while True:
                if self.used_bytes + num_bytes <= self.budget_bytes:
                    with suppress(OutOfMemory):
                        address = self.device.allocate(num_bytes)
                        self.used_bytes += num_bytes
                        return address
                if not self._evict_one():
                    if not self._num_leaving:
                        raise OutOfMemory(message)
                    self._changed.wait()

    def _evict_one(self) -> bool:
        """Give the least recently used one up, an idle one before one in use; False: all pinned."""
        unpinned = [digest for digest, each in self._residents.items() if not each.is_pinned]
        idle = [digest for digest in unpinned if not self._residents[digest].users]
        for digest in (idle or unpinned)[:1]:
            self.num_evicted += 1
            self._leave(self._residents.pop(digest))
            return True
        return False

    def _leave(self, resident: Resident) -> None:
        resident.wanted = False
        if resident.users:
            self._num_leaving += 1
        else:
            self._free(resident)

    def _free(self, resident: Resident) -> None:
        self.used_bytes -= resident.num_bytes
        self.device.free(resident.address)
        self._changed.notify_all()


class _Use:
    """Keeps a vocabulary on the device for a `with` block; made in a third of contextlib's time."""

    __slots__ = ("_cache", "_resident")

    def __init__(self, cache: VocabularyCache, resident: Resident) -> None:
        self._cache = cache
        self._resident = resident

    def __enter__(self) -> Resident:
        return self._resident

    def __exit__(self, *_: object) -> None:
        self._cache.give(self._resident)
