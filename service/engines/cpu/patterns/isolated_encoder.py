"""Encodes with unknown regular expressions in separate processes, which can be killed.

Each thread that encodes uses one process, which is then kept for the next thread. A call may use
`BASE_S` of CPU time, and a time that is proportional to its bytes. Above this limit the process is
killed, the request is refused with 504, and the next call starts another process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np

from service.core.errors import DeadlinePassed
from service.engines.base import Decoded, SelfTest
from service.engines.cpu.patterns.messages import Message
from service.engines.cpu.patterns.worker_process import TookTooLong, WorkerProcess
from service.engines.cpu.selection import ChosenEncoder, Int64s
from vocabularies.batch.batch import Batch, EncodeOptions, RowError
from vocabularies.batch.post_processing import Content
from vocabularies.errors import VocabularyError
from vocabularies.model import canonical
from vocabularies.model.tables import TokenTable
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
BASE_S = 1.0
US_PER_BYTE = 10.0  # The default of the setting `pattern_us_per_byte`.
LOAD_S = 60.0  # The most processor time of loading and of the self-test.


class IsolatedEncoder:
    """Encodes batches in other processes; it is thread-safe.

    Args:
        vocabulary: the vocabulary.
        table: the tokens of the vocabulary.
        us_per_byte: the most microseconds of CPU time per byte.

    Raises:
        VocabularyError: no encoder can compute the vocabulary in time.
    """

    def __init__(
        self, vocabulary: Vocabulary, table: TokenTable, us_per_byte: float = US_PER_BYTE
    ) -> None:
        self.vocabulary = vocabulary
        self.table = table
        self.us_per_byte = us_per_byte
        self._content = canonical.to_bytes(vocabulary)
        self._idle: list[WorkerProcess] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._idle.append(self._start())

    def _start(self) -> WorkerProcess:
        """Start a process, have it load the vocabulary, and store the report of the self-test."""
        load = Message({"call": "load"}, [np.frombuffer(self._content, np.uint8)])
        try:
            worker = WorkerProcess()
            try:
                answer = worker.call(load, LOAD_S).values
            except BaseException:
                worker.kill()
                raise
        except TookTooLong as error:
            message = (
                f"loading the vocabulary took too long: {error.seconds:.1f} s of processor time"
            )
            raise VocabularyError.at("vocabulary", message) from error
        self.name = answer["name"]
        self.self_test = SelfTest(*answer["self_test"])
        self.fallback_reason = answer["fallback_reason"]
        return worker

    def _take_idle(self) -> WorkerProcess | None:
        """Remove and return an idle process, or None; drop processes that have ended."""
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None or not worker.has_ended:
                return worker
            worker.kill()

    @contextmanager
    def _worker(self) -> Iterator[WorkerProcess]:
        """Lend a process to this thread; keep it afterwards if it is still alive."""
        worker = self._take_idle() or self._start()
        try:
            yield worker
        finally:
            with self._lock:
                is_kept = worker.is_alive and not self._is_closed
                if is_kept:
                    self._idle.append(worker)
            if not is_kept:
                worker.kill()

    def call(
        self, message: Message, num_bytes: int, should_continue: Callable[[], bool] = lambda: True
    ) -> Message:
        """Call a process that has loaded the vocabulary.

        Args:
            message: the call, as `worker` defines it.
            num_bytes: the bytes of text, which determine the time limit.
            should_continue: returns whether the answer is still needed.

        Raises:
            Abandoned: nobody needs the answer any more.
            DeadlinePassed: the call took too long.
            LibraryFailed: the library failed on a text, or ended the process.
        """
        cpu_s = BASE_S + self.us_per_byte * num_bytes / 1e6
        try:
            with self._worker() as worker:
                return worker.call(message, cpu_s, should_continue)
        except TookTooLong as error:
            text = "%s: a call for %d bytes was ended after %.1f s of processor time"
            logger.warning(text, self.vocabulary.digest, num_bytes, error.seconds)
            reason = "a regular expression of the vocabulary takes too long for this text"
            raise DeadlinePassed(f"{reason}: more than {cpu_s:.1f} s") from error

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options.

        Raises:
            Abandoned: no request waits for the batch any more.
            DeadlinePassed: the call took too long.
            LibraryFailed: the library ended the process.
        """
        values = {"call": "encode", "options": asdict(options), "has_texts": batch.has_texts}
        message = Message(values, [batch.data, batch.offsets])
        answer = self.call(message, len(batch.data), batch.should_continue)
        ids, offsets, *spans = answer.arrays
        errors = _read_errors(answer)
        return Content(ids, offsets, spans[0] if spans else None, errors)

    def decode(self, ids: Int64s, offsets: Int64s, skip: bool) -> Decoded:
        """Decode ids int64[T], whose rows begin at offsets int64[B + 1], with the library.

        Raises:
            DeadlinePassed: the call took too long.
            LibraryFailed: the library ended the process.
        """
        known = ids[(ids >= 0) & (ids < len(self.table.lengths))]
        num_bytes = int(np.maximum(self.table.lengths[known], 1).sum())
        message = Message({"call": "decode", "skip": skip}, [ids, offsets])
        answer = self.call(message, num_bytes)
        data, data_offsets = answer.arrays
        return Decoded(data, data_offsets, _read_errors(answer))

    def close(self) -> None:
        """End the processes; those that are computing a call end after it."""
        with self._lock:
            self._is_closed = True
            workers, self._idle = self._idle, []
        for worker in workers:
            worker.kill()


def _read_errors(answer: Message) -> dict[int, RowError]:
    return {row: RowError(*error) for row, *error in answer.values["errors"]}


def choose_isolated(vocabulary: Vocabulary, table: TokenTable, us_per_byte: float) -> ChosenEncoder:
    """Choose the encoder of a vocabulary with unknown patterns, in a separate process.

    Raises:
        VocabularyError: no encoder can compute this vocabulary in time.
    """
    encoder = IsolatedEncoder(vocabulary, table, us_per_byte)
    return ChosenEncoder(
        encoder, encoder.self_test, encoder.fallback_reason, encoder.decode, encoder.close
    )
