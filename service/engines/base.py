"""What an engine is: texts in, ids out; the narrow waist between the service and the compute.

Knows no HTTP and no CUDA. The contract suite (tests/engines/) holds every engine to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.core.counters import Histogram
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.vocabulary import Vocabulary


class Abandoned(Exception):
    """Nobody wants the answer any more; the engine stopped."""


class LibraryFailed(Exception):
    """The library that computes a vocabulary fails on a text, which therefore has no ids."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The comparison of an engine with the witness when a vocabulary is loaded.

    Attributes:
        witness: name and version of what the ids were compared with.
        num_texts, num_different: texts compared; texts whose ids differ.
        first_difference: the first differing text and both id lists, in words; "" if there is none.
    """

    witness: str
    num_texts: int
    num_different: int
    first_difference: str = ""


@dataclass(frozen=True, slots=True)
class Residency:
    """How an engine holds one vocabulary.

    Attributes:
        engine: what answers: "gpu", "cpu", or "reference" when the self-test failed.
        encoder: the part that computes the ids, such as "numpy" or "fastokens 0.3.5".
        self_test: its result.
        fallback_reason: why something slower than the engine's best answers; "" if nothing does.
        device_bytes: bytes held on the device; 0 on the CPU.
    """

    engine: str
    encoder: str
    self_test: SelfTest
    fallback_reason: str = ""
    device_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """What an engine keeps of one vocabulary in this machine's memory.

    Attributes:
        num_bytes: about, as its encoder and its number of tokens say.
        used: perf_counter time at which the last call for it began, or it was loaded.
    """

    num_bytes: int
    used: float


@dataclass(slots=True)
class Decoded:
    """The bytes that rows of ids stand for.

    Attributes:
        data: uint8[N], the rows joined.
        offsets: int64[B + 1].
        errors: refused rows, such as an id outside the vocabulary; they have no bytes.
        engine: what computed them: "gpu", "cpu" or "reference".
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    errors: dict[int, RowError] = field(default_factory=dict)
    engine: str = "cpu"


@dataclass(slots=True)
class Counted:
    """How many ids texts have.

    Attributes:
        counts: int64[B], 0 for a refused row.
        errors: the refused rows.
        engine: what counted: "gpu", "cpu" or "reference".
    """

    counts: NDArray[np.int64]
    errors: dict[int, RowError] = field(default_factory=dict)
    engine: str = "cpu"


@dataclass(slots=True)
class SharedEncoded:
    """Where the ids of texts in shared memory begin; the ids are where they were wanted.

    Attributes:
        offsets: int64[B + 1]; None where the host has to encode the texts instead.
        errors: none: refused rows need the host.
        engine: what computed them.
    """

    offsets: NDArray[np.int64] | None
    errors: dict[int, RowError] = field(default_factory=dict)
    engine: str = "gpu"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What an engine says of itself, for people and metrics.

    Attributes:
        engines: what may answer, the fastest first.
        devices: name, driver and memory of each device.
        crossover_bytes: batches from this size on are for the GPU; None where there is none.
        fallbacks: how often something slower took over, by reason.
        stages: seconds of the batches that were timed on a device, by stage.
        memory: bytes on each device by what they are for; by the device's name.
        page_locked: bytes of the host's memory that each device reads and writes itself.
    """

    engines: tuple[str, ...]
    devices: tuple[dict[str, str | int], ...] = ()
    crossover_bytes: int | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)
    stages: dict[str, Histogram] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    page_locked: dict[str, int] = field(default_factory=dict)


class DeviceMemory(SharedMemory, Protocol):
    """Device memory of another process, opened here."""

    def write(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Copy host memory there; it is there when this returns."""


class Codec(Protocol):
    """Encodes, counts and decodes; every method may be called from several threads at once."""

    @property
    def name(self) -> str:
        """The word that answers and metrics carry: "gpu" or "cpu"."""

    def status(self) -> EngineStatus:
        """What there is and what happened so far."""

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """uint8[num_bytes] for long texts, where `encode` reads them fastest; any will do."""

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of each row; a row that cannot be encoded is refused alone.

        Loads the vocabulary if need be.

        Raises:
            Abandoned: the batch is not wanted any more.
        """

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """How many ids `encode` would give each row."""

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        skip_special_tokens: bool,
    ) -> Decoded:
        """The bytes of ids int64[T] in rows offsets int64[B + 1]."""

    def close(self) -> None:
        """Give everything back."""


class VocabularyHost(Protocol):
    """Holds vocabularies in this process; methods may be called from several threads at once."""

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> Residency:
        """Make a vocabulary ready and compare it with its witness; a second call changes nothing.

        Args:
            vocabulary: the vocabulary.
            pinned: it never leaves a device to make room for another one.

        Raises:
            VocabularyError: nothing here can compute this vocabulary.
        """

    def settle(self) -> None:
        """Finish what starts in the background, once the first vocabularies are loaded; slow."""

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that are running finish on it."""

    def residency(self, digest: str) -> Residency | None:
        """How a vocabulary is held; None when it is not loaded."""

    def holdings(self) -> dict[str, Holding]:
        """What is loaded into this process, by digest."""


class DeviceSharing(Protocol):
    """Opens memory that other processes share with a device, and encodes texts there."""

    def open_shared(self, handle: bytes, num_bytes: int) -> DeviceMemory | None:
        """Device memory of another process, by its cudaIpcMemHandle_t; None: there is no device.

        Raises:
            ValueError: the device cannot open it.
        """

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory | None:
        """A part of a file of memory for a device to use; None: no device can, or there is none.

        Raises:
            ValueError: the file is shorter.
        """

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> NDArray[np.int64] | None:
        """The ids where they are wanted; int64[B + 1], where each row's begin.

        Returns:
            None where the host is needed, for refused rows or anything else: some ids may be there
            then, and `encode` has the answer.
        """


class Engine(Codec, VocabularyHost, DeviceSharing, Protocol):
    """An engine in this process."""


class WithoutDevice:
    """The `DeviceSharing` of a process without a device."""

    def open_shared(self, handle: bytes, num_bytes: int) -> DeviceMemory | None:
        """There is no device here."""
        return None

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory | None:
        """There is no device here."""
        return None

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> NDArray[np.int64] | None:
        """There is no device here."""
        return None
