"""Defines the interface of engines, which compute ids from texts.

It depends on neither HTTP nor CUDA. The tests in tests/engines/ check every engine against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.vocabulary import Vocabulary


class Abandoned(Exception):
    """The engine stopped a batch because no request waits for it any more."""


class LibraryFailed(Exception):
    """The library that defines a vocabulary's ids failed on a text, which therefore has no ids."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of comparing an engine's ids with the witness's when a vocabulary is loaded.

    Attributes:
        witness: the name and version of the tokenizer whose ids are the expected ones.
        num_texts: the number of compared texts.
        num_different: the number of texts whose ids differ.
        first_difference: a sentence with the first text that differs and both lists of ids; "" if
            none differs.
    """

    witness: str
    num_texts: int
    num_different: int
    first_difference: str = ""


@dataclass(frozen=True, slots=True)
class Residency:
    """The state of one vocabulary on an engine.

    Attributes:
        engine: "gpu", "cpu", or "reference" if no other encoder passed the self-test.
        encoder: the library or device that computes the ids, such as "tokenizers 0.23.1".
        self_test: the result of the self-test.
        fallback_reason: why the engine's fastest encoder is not used; "" if it is.
        device_bytes: the bytes of device memory; 0 on the CPU.
    """

    engine: str
    encoder: str
    self_test: SelfTest
    fallback_reason: str = ""
    device_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """The host memory that a loaded vocabulary uses, and when it was last used.

    Attributes:
        num_bytes: an estimate from the encoder and the number of tokens.
        used: the perf_counter time of the begin of the last call, or of loading.
    """

    num_bytes: int
    used: float


@dataclass(slots=True)
class Decoded:
    """The bytes that rows of ids represent.

    Attributes:
        data: uint8[N], the bytes of all rows, joined.
        offsets: int64[B + 1], where each row begins.
        errors: the refused rows, for example those with an id outside the vocabulary; they have no
            bytes.
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
    """The offsets of ids that were written to shared memory.

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
        state: "ready"; "resting" after failures; or "hanging" while a call does not return.
        num_batches, num_bytes: the number of batches that the device has ended, and their bytes.
        num_failures: the number of calls that failed or hung.
        bytes_in_flight: the bytes of the batches that it is computing.
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
        engines: the engines that may be used, the fastest first.
        devices: the name, number, state, driver and memory of each device.
        crossover_bytes: the size of the smallest batch for the GPU; None without a GPU.
        fallbacks: the number of batches computed by a slower engine, by reason.
        memory: the bytes of memory by purpose on each device, by device name.
        page_locked: the page-locked bytes of host memory that each device accesses, by device name.
        up: whether each device receives batches, by device name.
        activity: the activity of each device, by device name; empty with a single device.
    """

    engines: tuple[str, ...]
    devices: tuple[dict[str, str | int], ...] = ()
    crossover_bytes: int | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    page_locked: dict[str, int] = field(default_factory=dict)
    up: dict[str, bool] = field(default_factory=dict)
    activity: dict[str, DeviceActivity] = field(default_factory=dict)


AnswerIds = Callable[[Encoded | None], None]
"""Receives the ids of a batch, or None if `Codec.encode` has to encode it."""


class DeviceMemory(SharedMemory, Protocol):
    """Device memory of another process that is open in this process."""

    def write(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Copy host memory to an offset; return after the copy has finished."""


class Codec(Protocol):
    """Encodes, counts and decodes; it is thread-safe."""

    @property
    def name(self) -> str:
        """The name of the engine in answers and metrics, such as "gpu" or "cpu"."""

    def status(self) -> EngineStatus:
        """Return the engine's state and its counts so far."""

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Allocate uint8[num_bytes] in the memory from which `encode` reads long texts fastest."""

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row, and load the vocabulary if needed; refuse rows that cannot be encoded.

        Raises:
            Abandoned: no request waits for the batch any more.
        """

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """Count the ids that `encode` would return for each row."""

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
    """Loads vocabularies into this process; it is thread-safe."""

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> Residency:
        """Load a vocabulary and compare its ids with the witness's; a second call changes nothing.

        Args:
            vocabulary: the vocabulary.
            permanent: whether the vocabulary is never evicted from a device.

        Raises:
            VocabularyError: no encoder can compute this vocabulary.
        """

    def settle(self) -> None:
        """Wait for the background work that loading the first vocabularies started."""

    def unload(self, digest: str) -> None:
        """Unload a vocabulary; calls that are using it still finish."""

    def residency(self, digest: str) -> Residency | None:
        """Return the state of a vocabulary; None if it is not loaded."""

    def holdings(self) -> dict[str, Holding]:
        """Return the loaded vocabularies by digest."""


class DeviceSharing(Protocol):
    """Opens memory that other processes share with a device, and encodes texts in this memory."""

    def begin_encode(self, vocabulary: Vocabulary, batch: Batch, answer: AnswerIds) -> bool:
        """Let the process of a device begin to encode a batch, while no thread waits for the ids.

        Args:
            vocabulary: the vocabulary.
            batch: joined bytes; they must not change before `answer` is called.
            answer: called by the running event loop, later.

        Returns:
            Whether the batch has begun. If not, `Codec.encode` has to encode it, and `answer` is
            never called. That is so for small batches, and for texts that the device's process
            does not see.
        """

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int = 0) -> DeviceMemory | None:
        """Open device memory of another process on its device; return None if there is no device.

        Args:
            handle: the cudaIpcMemHandle_t of the memory.
            num_bytes: the size of the memory.
            device_id: the number of the device in the other process.

        Raises:
            ValueError: the device cannot open the memory.
        """

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory | None:
        """Share a part of a memory file with a device; return None if no device can use it.

        Raises:
            ValueError: the part reaches beyond the end of the file.
        """

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> NDArray[np.int64] | None:
        """Encode texts in shared memory, and write the ids to shared memory.

        Returns:
            The offsets of each row's ids, int64[B + 1]. None: the host has to encode the batch
            with `encode`, for example because of a refused row; some ids may already be written.
        """


class Engine(Codec, VocabularyHost, DeviceSharing, Protocol):
    """An engine that computes in this process."""

    def take_stage_seconds(self) -> dict[str, list[float]]:
        """Return the seconds per stage on a device, for the batches timed since the last call."""


class WithoutDevice:
    """The `DeviceSharing` of a process without a device; it times no stages."""

    def take_stage_seconds(self) -> dict[str, list[float]]:
        """Return no times, as there is no device."""
        return {}

    def begin_encode(self, vocabulary: Vocabulary, batch: Batch, answer: AnswerIds) -> bool:
        """Return False, as there is no device."""
        return False

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int = 0) -> DeviceMemory | None:
        """Return None, as there is no device."""
        return None

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory | None:
        """Return None, as there is no device."""
        return None

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> NDArray[np.int64] | None:
        """Return None, as there is no device."""
        return None
