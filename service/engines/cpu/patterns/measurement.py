"""Times the unknown regular expressions of an upload on hostile texts, and refuses slow ones.

Short texts are timed first. Long texts then repeat the slowest of their strings, because the time
per byte of a slow expression grows with the length. The time limit of each call
(`isolated_encoder`) stops the slow patterns that this measurement does not find.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from service.engines.base import LibraryFailed
from service.engines.cpu.patterns.hostile_texts import make_texts, make_units
from service.engines.cpu.patterns.messages import Message
from service.engines.cpu.patterns.worker_process import TookTooLong, WorkerProcess
from vocabularies.errors import VocabularyError
from vocabularies.preprocessing.running_time import UnknownPattern

SHORT_SIZES = (32, 500, 2_500)  # Characters.
LONG_SIZE = 64_000
NUM_LONG = 5  # Strings of which the longest texts are made.
FREE_S = 0.01  # Of each text, which may be lost to other processes.
NUM_TIMES = 3  # A text is timed again if it was slow; the machine may have been.
MARGIN_S = 0.05
COMPILE_S = 5.0
MAX_TOTAL_S = 3.0  # Of all texts of an upload.
# Published, and slow only on texts that nobody writes, such as many spaces before a digit: each
# call's own time bounds it. DeepSeek LLM and DeepSeek Coder.
ACCEPTED = (r"\s+$",)
SHOWN = 80  # Characters of an expression that a refusal repeats.


def refuse_slow_patterns(patterns: Iterable[UnknownPattern], us_per_byte: float) -> None:
    """Time regular expressions in another process. This is slow, so call it in a thread.

    Args:
        patterns: the expressions.
        us_per_byte: the most microseconds of CPU time per byte.

    Raises:
        VocabularyError: an expression takes longer; the error names it, its place and the time.
    """
    left_s = MAX_TOTAL_S
    for pattern in patterns:
        if pattern.pattern in ACCEPTED:
            continue
        worker = WorkerProcess(is_quiet=True)
        try:
            left_s -= _Measurement(worker, pattern, us_per_byte, left_s).run()
        except LibraryFailed as error:
            raise _refusal(pattern, "ends the process of the library tokenizers") from error
        finally:
            worker.kill()


class _Measurement:
    """Times one expression until it is refused, or `left_s` have passed."""

    def __init__(
        self, worker: WorkerProcess, pattern: UnknownPattern, us_per_byte: float, left_s: float
    ) -> None:
        self.worker = worker
        self.pattern = pattern
        self.us_per_byte = us_per_byte
        self.left_s = left_s
        self.seconds = 0.0

    def run(self) -> float:
        """Time the expression; return the CPU time that all texts took."""
        pattern = self.pattern.pattern
        try:
            self.worker.call(Message({"call": "compile", "pattern": pattern}), COMPILE_S)
        except TookTooLong as error:
            message = f"took {error.seconds:.1f} s to compile"
            raise _refusal(self.pattern, message) from error
        except RuntimeError as error:
            raise _refusal(
                self.pattern, f"cannot be compiled by the library tokenizers: {error}"
            ) from error
        slowest: dict[str, float] = {}
        for size in SHORT_SIZES:
            for unit in make_units(pattern):
                slowest[unit] = self._time_texts(unit, size)
        for unit in sorted(slowest, key=lambda unit: -slowest[unit])[:NUM_LONG]:
            self._time_texts(unit, LONG_SIZE)
        return self.seconds

    def _time_texts(self, unit: str, size: int) -> float:
        """Return the largest time per byte, in seconds, of the texts that repeat a unit."""
        most = 0.0
        for text in make_texts(self.pattern.pattern, unit, size):
            if self.seconds > self.left_s:
                break
            data = np.frombuffer(text.encode(), np.uint8)
            most = max(most, self._time_text(data) / len(data))
        return most

    def _time_text(self, data: NDArray[np.uint8]) -> float:
        """Return the CPU time of a text, in seconds.

        Raises:
            VocabularyError: the text takes too long each time.
        """
        most_s = FREE_S + self.us_per_byte * len(data) / 1e6
        is_ended = ""
        for _ in range(NUM_TIMES):
            try:
                answer = self.worker.call(Message({"call": "time"}, [data]), most_s + MARGIN_S)
            except TookTooLong as error:
                seconds, is_ended = error.seconds, "more than "
                break  # The worker was killed.
            seconds = float(answer.values["seconds"])
            self.seconds += seconds
            if seconds <= most_s:
                return seconds
        time = f"{is_ended}{1000 * seconds:.0f} ms"
        message = f"takes {time} for {len(data)} bytes of a text made to be slow"
        limit = f"pattern_us_per_byte is {self.us_per_byte:g}"
        time = f"{is_ended}{1e6 * seconds / len(data):.1f} µs a byte"
        raise _refusal(self.pattern, f"{message}, {time}; {limit}")


def _refusal(pattern: UnknownPattern, message: str) -> VocabularyError:
    shown = pattern.pattern
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    return VocabularyError.at(pattern.where, f"the regular expression {shown!r} {message}")
