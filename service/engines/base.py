"""Defines an engine: texts in, ids out. It is the interface between the service and the compute.

Knows no HTTP and no CUDA. The tests in tests/engines/ hold every engine to this contract.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.vocabulary import Vocabulary


class Abandoned(Exception):
    """The engine stopped a batch that no request waits for any more."""


class LibraryFailed(Exception):
    """The library that defines a vocabulary's ids fails on a text, which then has no ids."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of comparing an engine with a witness when a vocabulary is loaded.

    Attributes:
        witness: the name and version of the tokenizer that the ids are compared with.
        num_texts: the number of compared texts.
        num_different: the number of texts whose ids differ.
        first_difference: a sentence with the first such text and both lists of ids; "" if there is
            none.
    """

    witness: str
    num_texts: int
    num_different: int
    first_difference: str = ""


@dataclass(frozen=True, slots=True)
class Residency:
    """The state of one vocabulary on an engine.

    Attributes:
        engine: "gpu", "cpu", or "reference" if no faster encoder passed the self-test.
        encoder: the library or device that computes the ids, such as "tokenizers 0.23.1".
        self_test: the result of the self-test.
        fallback_reason: why the engine's fastest encoder does not answer; "" if it does.
        device_bytes: the bytes on the device; 0 on the CPU.
    """

    engine: str
    encoder: str
    self_test: SelfTest
    fallback_reason: str = ""
    device_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """The host memory that a loaded vocabulary takes, and its last use.

    Attributes:
        num_bytes: an estimate from its encoder and its number of tokens.
        used: the perf_counter time at which it was loaded, or its last call began.
    """

    num_bytes: int
    used: float


@dataclass(slots=True)
class Decoded:
    """The bytes that rows of ids stand for.

    Attributes:
        data: uint8[N], the rows joined.
        offsets: int64[B + 1], where each row begins.
        errors: the refused rows, for example with an id outside the vocabulary; they have no bytes.
        engine: the engine that decoded them: "gpu", "cpu" or "reference".
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    errors: dict[int, RowError] = field(default_factory=dict)
    engine: str = "cpu"


@dataclass(slots=True)
class Counted:
    """The number of ids of each text.

    Attributes:
        counts: int64[B], 0 for a refused row.
        errors: the refused rows.
        engine: the engine that counted them: "gpu", "cpu" or "reference".
    """

    counts: NDArray[np.int64]
    errors: dict[int, RowError] = field(default_factory=dict)
    engine: str = "cpu"


@dataclass(slots=True)
class SharedEncoded:
    """The offsets of ids that were written into shared memory.

    Attributes:
        offsets: int64[B + 1], where each row begins; None: the host has to encode the texts.
        errors: always empty, as the host encodes batches with refused rows.
        engine: the engine that computed the ids.
    """

    offsets: NDArray[np.int64] | None
    errors: dict[int, RowError] = field(default_factory=dict)
    engine: str = "gpu"


@dataclass(frozen=True, slots=True)
class DeviceActivity:
    """The current and past activity of one of several devices.

    Attributes:
        state: "ready"; "resting" after failures; "hanging" while calls do not return.
        num_batches, num_bytes: the batches that it was given, and their bytes.
        num_failures: the calls that failed or hung.
        bytes_in_flight: the bytes of the batches that it computes now.
    """

    state: str
    num_batches: int = 0
    num_bytes: int = 0
    num_failures: int = 0
    bytes_in_flight: int = 0


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The state of an engine, for /v1/info and the metrics.

    Attributes:
        engines: the engines that may answer, the fastest first.
        devices: the name, number, state, driver and memory of each device.
        crossover_bytes: the smallest batch that goes to the GPU; None without a GPU.
        fallbacks: the number of batches that a slower engine computed, by reason.
        memory: the bytes on each device by their purpose, by the device's name.
        page_locked: the page-locked bytes of host memory that each device accesses, by its name.
        up: whether each device gets batches, by its name.
        activity: the activity of each of several devices, by its name; empty with one.
    """

    engines: tuple[str, ...]
    devices: tuple[dict[str, str | int], ...] = ()
    crossover_bytes: int | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    page_locked: dict[str, int] = field(default_factory=dict)
    up: dict[str, bool] = field(default_factory=dict)
    activity: dict[str, DeviceActivity] = field(default_factory=dict)


class DeviceMemory(SharedMemory, Protocol):
    """Device memory of another process, opened in this one."""

    def write(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Copy host memory to an offset; return when it is copied."""


class Codec(Protocol):
    """Encodes, counts and decodes; several threads may call it at once."""

    @property
    def name(self) -> str:
        """The engine's name in answers and metrics, such as "gpu" or "cpu"."""

    def status(self) -> EngineStatus:
        """Report the engine's state and its counts so far."""

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Allocate uint8[num_bytes] from which `encode` reads long texts fastest."""

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row, and load the vocabulary if needed; refuse rows that cannot be encoded.

        Raises:
            Abandoned: no request waits for the batch any more.
        """

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """Count the ids that `encode` would give each row."""

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        skip_special_tokens: bool,
    ) -> Decoded:
        """Decode ids int64[T], whose rows begin at offsets int64[B + 1], to bytes."""

    def close(self) -> None:
        """Release all memory and threads."""


class VocabularyHost(Protocol):
    """Loads vocabularies into this process; several threads may call it at once."""

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> Residency:
        """Make a vocabulary ready and compare it with its witness; a second call changes nothing.

        Args:
            vocabulary: the vocabulary.
            permanent: whether it is never evicted from a device.

        Raises:
            VocabularyError: no encoder can compute this vocabulary.
        """

    def settle(self) -> None:
        """Wait for the background work that loading the first vocabularies has started."""

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that are running on it still finish."""

    def residency(self, digest: str) -> Residency | None:
        """Report the state of a vocabulary; None if it is not loaded."""

    def holdings(self) -> dict[str, Holding]:
        """List the loaded vocabularies by digest."""


class DeviceSharing(Protocol):
    """Opens memory that other processes share with a device, and encodes texts in it."""

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int = 0) -> DeviceMemory | None:
        """Open device memory of another process on the device that has it; None: no device.

        Args:
            handle: its cudaIpcMemHandle_t.
            num_bytes: its size.
            device_id: the number that the other process has for the device.

        Raises:
            ValueError: the device cannot open it.
        """

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory | None:
        """Share a part of a memory file with a device; None: there is no device that can use it.

        Raises:
            ValueError: the file is shorter.
        """

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> NDArray[np.int64] | None:
        """Encode texts in shared memory, and write the ids into shared memory.

        Returns:
            The offsets of each row's ids, int64[B + 1]. None: the host has to encode the batch
            with `encode`, for example because of a refused row; some ids may be written already.
        """


class Engine(Codec, VocabularyHost, DeviceSharing, Protocol):
    """An engine in this process."""

    def take_stage_seconds(self) -> dict[str, list[float]]:
        """Return the seconds in each stage on a device of the batches timed since the last call."""


class WithoutDevice:
    """The `DeviceSharing` of a process without a device, in which no stages are timed."""

    def take_stage_seconds(self) -> dict[str, list[float]]:
        """Return nothing: there is no device."""
        return {}

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int = 0) -> DeviceMemory | None:
        """Return None: there is no device."""
        return None

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory | None:
        """Return None: there is no device."""
        return None

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> NDArray[np.int64] | None:
        """Return None: there is no device."""
        return None
