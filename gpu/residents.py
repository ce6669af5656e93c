"""Vocabularies on the device: made once, the least recently used given up when memory is short.

Knows no batch. A vocabulary in use is never given up; one that was is made again when it is needed.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpu.automata import automaton
from gpu.decode import decode_table
from gpu.device import Device, OutOfMemory
from gpu.special import SpecialTables, special_tables
from gpu.tables import (
    PAIRS_A_BUCKET,
    SHORT_A_BUCKET,
    BpeTables,
    NotCovered,
    bpe_tables,
    shift_of,
)
from vocabularies.vocabulary import Vocabulary

__all__ = ["Resident", "Residents"]

ALIGNMENT = 256


@dataclass(slots=True, eq=False)
class Resident:
    """A vocabulary on the device.

    Attributes:
        fields: Job fields and what they hold.
        num_rounds: rounds of special tokens.
        has_whole_only: whether starts made by cutting must be told from others.
        address, num_bytes: its one block of device memory.
        users: calls that use it now.
        wanted: False once it was unloaded; its last user frees it.
    """

    fields: Mapping[str, int]
    num_rounds: int
    has_whole_only: bool
    address: int
    num_bytes: int
    users: int = field(default=0)
    wanted: bool = field(default=True)


class Residents:
    """The vocabularies of one device.

    Args:
        device: the device.
        budget_bytes: device memory that all of them may take together.
    """

    def __init__(self, device: Device, budget_bytes: int) -> None:
        self.device, self.budget_bytes = device, budget_bytes
        self.used_bytes = self.num_evicted = 0
        self._seed = secrets.randbits(32)
        self._residents: OrderedDict[str, Resident] = OrderedDict()
        self._lock = threading.RLock()

    def __contains__(self, digest: str) -> bool:
        return digest in self._residents

    def load(self, vocabulary: Vocabulary) -> int:
        """Put a vocabulary on the device; returns its bytes there.

        Raises:
            NotCovered: the kernels cannot compute it.
            OutOfMemory: it does not fit beside those that are in use.
        """
        with self.using(vocabulary) as resident:
            return resident.num_bytes

    @contextmanager
    def using(self, vocabulary: Vocabulary) -> Iterator[Resident]:
        """A vocabulary that stays on the device meanwhile; loads it if need be."""
        with self._lock:
            resident = self._residents.get(vocabulary.digest)
            if resident is None:
                resident = self._residents[vocabulary.digest] = self._upload(vocabulary)
            self._residents.move_to_end(vocabulary.digest)
            resident.users += 1
        try:
            yield resident
        finally:
            with self._lock:
                resident.users -= 1
                if not resident.wanted and not resident.users:
                    self._free(resident)

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that use it finish on it."""
        with self._lock:
            resident = self._residents.pop(digest, None)
            if resident is None:
                return
            resident.wanted = False
            if not resident.users:
                self._free(resident)

    def close(self) -> None:
        """Forget all of them."""
        for digest in list(self._residents):
            self.unload(digest)

    def _free(self, resident: Resident) -> None:
        self.used_bytes -= resident.num_bytes
        self.device.free(resident.address)

    def _evict_one(self) -> bool:
        """Give the least recently used one up; False where all are in use."""
        for digest, resident in self._residents.items():
            if not resident.users:
                self.unload(digest)
                self.num_evicted += 1
                return True
        return False

    def _allocate(self, num_bytes: int) -> int:
        while self.used_bytes + num_bytes > self.budget_bytes:
            if not self._evict_one():
                message = f"{num_bytes} bytes more than the {self.budget_bytes} for vocabularies"
                raise OutOfMemory(message)
        while True:
            try:
                return self.device.allocate(num_bytes)
            except OutOfMemory:
                if not self._evict_one():
                    raise

    def _upload(self, vocabulary: Vocabulary) -> Resident:
        arrays, numbers, num_rounds = _tables(vocabulary, self._seed)
        places, size = {}, 0
        for name, array in arrays.items():
            places[name] = size
            size += (array.nbytes // ALIGNMENT + 1) * ALIGNMENT
        address = self._allocate(size)
        self.used_bytes += size
        stream = self.device.stream()
        for name, array in arrays.items():
            stream.copy_in(address + places[name], array.ctypes.data, array.nbytes)
        stream.synchronize()
        fields = numbers | {name: address + place for name, place in places.items()}
        return Resident(fields, num_rounds, bool(numbers["has_whole_only"]), address, size)


def _tables(
    vocabulary: Vocabulary, seed: int
) -> tuple[dict[str, NDArray[np.generic]], dict[str, int], int]:
    """Arrays and numbers by the Job field they are for, and the rounds of special tokens.

    Raises:
        NotCovered: the kernels cannot compute the vocabulary.
    """
    if vocabulary.normalizers:
        raise NotCovered(f"the normalizer {vocabulary.normalizers[0].kind} rewrites the text")
    try:
        rule = automaton(vocabulary.pretokenizer)
    except ValueError as error:
        raise NotCovered(str(error)) from error
    special = special_tables(vocabulary, seed)
    tables = bpe_tables(vocabulary, seed)
    arrays: dict[str, NDArray[np.generic]] = {
        "entries": rule.entries,
        "class_pages": rule.pages,
        "class_table": rule.page_rows,
        "token_table": decode_table(vocabulary),
        "prefix": np.array(vocabulary.prefix, np.int32),
        "suffix": np.array(vocabulary.suffix, np.int32),
    }
    for source in (tables, special):
        for name in source.__slots__:
            value = getattr(source, name)
            if isinstance(value, np.ndarray):
                arrays[name] = np.ascontiguousarray(value)
    numbers = _numbers(tables, special) | {
        "num_states": rule.num_certain,
        "num_classes": rule.num_classes,
        "num_prefix": len(vocabulary.prefix),
        "num_suffix": len(vocabulary.suffix),
    }
    return arrays, numbers, special.num_rounds


def _numbers(tables: BpeTables, special: SpecialTables) -> dict[str, int]:
    return {
        "short_shift": shift_of(tables.short_tokens, SHORT_A_BUCKET),
        "long_shift": shift_of(tables.long_tokens, 1),
        "pair_shift": shift_of(tables.pairs, PAIRS_A_BUCKET),
        "token_shift": shift_of(tables.token_places, 1),
        "num_ids": len(tables.token_begins) - 1,
        "max_token": tables.max_token,
        "has_whole_only": int(tables.has_whole_only),
        "ignore_merges": int(tables.ignore_merges),
        "special_mask": special.special_mask,
        "seed": tables.seed,
    }
