"""Answers the calls of the parent in a GPU worker, with one thread per connection."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.errors import DeviceLost, NotCovered, find_lost_context
from gpu.runtime.device import Device
from service.engines.base import DeviceMemory
from service.engines.hybrid.residency import OpenedGpu
from service.multiprocess.gpu_workers.connection import Connection
from service.multiprocess.gpu_workers.messages import (
    ANSWER,
    make_encoded_message,
    make_error_message,
    write_errors,
)
from service.multiprocess.gpu_workers.parent_memory import ParentMemory, array_in_region
from service.multiprocess.gpu_workers.worker_memory import OWN_MEMORY
from service.multiprocess.link.batch_messages import make_options, read_work
from service.multiprocess.link.frames import Frame, Message, Place, PlacedArray
from service.multiprocess.link.shared_memory import MIN_SHARED_BYTES
from service.server.startup import DEVICE_LOST
from vocabularies.batch.batch import Batch
from vocabularies.batch.shared_rows import SharedMemory, SharedRows, SharedText
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


class OwnGpu(NamedTuple):
    """The open GPU of this process."""

    device: Device
    opened: OpenedGpu


class PlacedAnswer(NamedTuple):
    """An answer, and its arrays, of which large ones are in the parent's memory."""

    message: Message
    placed: list[PlacedArray]


class WorkerServer:
    """Answers calls; it is thread-safe.

    Args:
        gpu: the GPU.
        memory: the memory of the parent.
    """

    def __init__(self, gpu: OwnGpu, memory: ParentMemory) -> None:
        self._gpu = gpu.opened.gpu
        self._device = gpu.device
        self._memory = memory
        self._vocabularies: dict[str, Vocabulary] = {}
        self._regions: dict[int, SharedMemory] = {}
        self._loans: dict[int, list[NDArray[Any]]] = {}  # Arrays that the parent reads.
        self._loan_numbers = count(1)
        self._residents: list[str] = []
        self._version = 0
        self._lock = threading.Lock()
        self._num_running = 0
        self._has_ended = threading.Condition(self._lock)
        self._calls: dict[str, Callable[[Message, list[int]], Message]] = {
            "load": self._load,
            "unload": self._unload,
            "encode": self._encode,
            "count": self._count,
            "decode": self._decode,
            "encode_shared": self._encode_shared,
            "open_host": self._open_host,
            "open_device": self._open_device,
            "read": self._read,
            "write": self._write,
            "refresh": self._refresh,
        }

    def serve(self, connection: Connection) -> None:
        """Answer the calls of a connection until the parent closes it."""
        self._memory.connect_thread(connection)
        try:
            while True:
                frame, files = connection.receive()
                with self._lock:
                    self._num_running += 1
                try:
                    self._answer(connection, frame, files)
                finally:
                    with self._lock:
                        self._num_running -= 1
                        self._has_ended.notify_all()
                del frame
        except (OSError, EOFError):
            pass  # The parent has closed it.
        finally:
            connection.close()

    def wait_until_idle(self) -> None:
        """Wait until all calls are answered."""
        with self._lock:
            self._has_ended.wait_for(lambda: not self._num_running)

    def _answer(self, connection: Connection, frame: Frame, files: list[int]) -> None:
        """Compute a call and send the answer; end the process if its device is lost."""
        lost = ""
        try:
            answer = self._place(self._compute(frame, files))
        except BaseException as error:
            lost = find_lost_context(error)
            answer = PlacedAnswer(make_error_message(error), [])
            del error
        finally:
            for file in files:
                os.close(file)
        if lost:
            self._end_lost(connection, lost)
        self._send(connection, answer)

    def _end_lost(self, connection: Connection, lost: str) -> None:
        """Report that the device is lost, and end the process; the parent starts a new one."""
        logger.critical("the CUDA context is lost by %s; the worker ends", lost)
        connection.send(make_error_message(DeviceLost(f"its context is lost by {lost}")))
        logging.shutdown()
        os._exit(DEVICE_LOST)

    def _compute(self, frame: Frame, files: list[int]) -> Message:
        message = frame.message
        self._change(message.values)
        for number in frame.released:
            self._loans.pop(number, None)
        frame.read_arrays(self._find)
        return self._calls[message.kind](message, files)

    def _change(self, values: dict[str, Any]) -> None:
        """Apply the changes of memory that came with a call."""
        for offset, num_bytes, is_pinned in values.get("pinned", ()):
            if is_pinned:
                self._memory.pin(self._device, offset, num_bytes)
            else:
                self._memory.unpin(self._device, offset)
        for number in values.get("closed", ()):
            if (region := self._regions.pop(number, None)) is not None:
                region.close()

    def _find(self, place: Place, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Find an array in the parent's memory or in a region."""
        assert not isinstance(place, int)
        number, offset = place
        if number == OWN_MEMORY:
            return self._memory.array(offset, dtype, shape)
        return array_in_region(self._regions[number], offset, dtype, shape)

    def _place(self, message: Message) -> PlacedAnswer:
        """Copy large arrays of an answer to the parent's memory, unless they are already there."""
        answer: list[PlacedArray] = []
        for array in message.arrays:
            placed = np.ascontiguousarray(array)
            # A view of an array of the call, which is read-only, is kept only until the answer.
            offset = self._memory.find_offset(placed) if placed.flags.writeable else None
            if offset is None and placed.nbytes >= MIN_SHARED_BYTES:
                block = self._gpu.host_memory(placed.nbytes)
                if block is not None and (offset := self._memory.find_offset(block)) is not None:
                    copy = block.view(placed.dtype).reshape(placed.shape)
                    copy[...] = placed
                    placed = copy
            place = None if offset is None else (OWN_MEMORY, offset)
            answer.append(PlacedArray(placed, place))
        return PlacedAnswer(message, answer)

    def _send(self, connection: Connection, answer: PlacedAnswer) -> None:
        message, placed = answer
        self._add_residents(message)
        if freed := self._memory.take_freed():
            message.values["freed"] = freed
        loan = 0
        if lent := [each.array for each in placed if each.place is not None]:
            loan = next(self._loan_numbers)
            self._loans[loan] = lent
        connection.send(message, placed, loan=loan)

    def _add_residents(self, message: Message) -> None:
        """Report which vocabularies are on the device, if this has changed; drop all others."""
        with self._lock:
            residents = [each for each in self._vocabularies if self._gpu.is_resident(each)]
            if residents == self._residents:
                return
            self._residents = residents
            self._version += 1
            message.values |= {"residents": residents, "version": self._version}

    def _find_vocabulary(self, digest: str) -> Vocabulary:
        """Find a vocabulary by its digest.

        Raises:
            NotCovered: the vocabulary was evicted after the parent chose this GPU.
        """
        vocabulary = self._vocabularies.get(digest)
        if vocabulary is None:
            raise NotCovered("the vocabulary is no longer on the GPU")
        return vocabulary

    # Calls.

    def _load(self, message: Message, files: list[int]) -> Message:
        digest = message.values["digest"]
        vocabulary = self._vocabularies.get(digest)
        if vocabulary is None:
            if not message.arrays:
                raise NotCovered("the vocabulary is no longer on the GPU")
            vocabulary = read_canonical(message.arrays[0].tobytes())
        num_bytes = self._gpu.load(vocabulary, message.values["permanent"])
        with self._lock:
            self._vocabularies[digest] = vocabulary
            for other in [*self._vocabularies]:
                if not self._gpu.is_resident(other):  # Its parent sends it again.
                    del self._vocabularies[other]
        return Message(ANSWER, {"num_bytes": num_bytes})

    def _unload(self, message: Message, files: list[int]) -> Message:
        digest = message.values["digest"]
        self._gpu.unload(digest)
        with self._lock:
            self._vocabularies.pop(digest, None)
        return Message(ANSWER)

    def _read_batch(self, message: Message) -> tuple[Vocabulary, Batch]:
        vocabulary = self._find_vocabulary(message.values["digest"])
        batch = read_work(message, vocabulary).rows
        assert isinstance(batch, Batch)
        return vocabulary, batch

    def _encode(self, message: Message, files: list[int]) -> Message:
        return make_encoded_message(self._gpu.encode(*self._read_batch(message)))

    def _count(self, message: Message, files: list[int]) -> Message:
        counts, errors = self._gpu.count(*self._read_batch(message))
        return Message(ANSWER, {"errors": write_errors(errors)}, [counts])

    def _decode(self, message: Message, files: list[int]) -> Message:
        vocabulary = self._find_vocabulary(message.values["digest"])
        ids, offsets = message.arrays
        skip_special_tokens = message.values["skip_special_tokens"]
        data, places, errors = self._gpu.decode(vocabulary, ids, offsets, skip_special_tokens)
        return Message(ANSWER, {"errors": write_errors(errors)}, [data, places])

    def _encode_shared(self, message: Message, files: list[int]) -> Message:
        values = message.values
        vocabulary = self._find_vocabulary(values["digest"])
        text, text_begin, text_bytes = values["text"]
        out, out_begin, out_bytes = values["out"]
        rows = SharedRows(
            SharedText(self._find_region(text), text_begin, text_bytes),
            message.arrays[0],
            self._find_region(out),
            out_begin,
            out_bytes,
            values["id_bytes"],
            make_options(*values["options"]),
        )
        return Message(ANSWER, {}, [self._gpu.encode_shared(vocabulary, rows)])

    def _find_region(self, number: int) -> SharedMemory:
        region = self._regions.get(number)
        if region is None:
            raise ValueError("the memory is closed")
        return region

    def _find_device_region(self, number: int) -> DeviceMemory:
        region: Any = self._find_region(number)
        memory: DeviceMemory = region
        return memory

    def _open_host(self, message: Message, files: list[int]) -> Message:
        values = message.values
        (file,) = files
        memory = self._gpu.share_host(file, values["offset"], values["num_bytes"])
        self._regions[values["region"]] = memory
        return Message(ANSWER)

    def _open_device(self, message: Message, files: list[int]) -> Message:
        values = message.values
        memory = self._gpu.open_shared(bytes.fromhex(values["handle"]), values["num_bytes"])
        self._regions[values["region"]] = memory
        return Message(ANSWER)

    def _read(self, message: Message, files: list[int]) -> Message:
        values = message.values
        num_bytes = values["num_bytes"]
        out = self._gpu.host_memory(num_bytes)
        if out is None:
            out = np.empty(num_bytes, np.uint8)
        self._find_region(values["region"]).read(values["offset"], out)
        return Message(ANSWER, {}, [out])

    def _write(self, message: Message, files: list[int]) -> Message:
        values = message.values
        data = message.arrays[0]
        self._find_device_region(values["region"]).write(values["offset"], data)
        return Message(ANSWER)

    def _refresh(self, message: Message, files: list[int]) -> Message:
        values = {
            "memory": self._gpu.memory(),
            "page_locked": self._gpu.page_locked_bytes,
            "stages": self._gpu.stage_times.take(),
        }
        return Message(ANSWER, values)
