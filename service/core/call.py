"""When a request came, and how long its stages took."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter


@dataclass(slots=True)
class Times:
    """The times of one request; those of a stream's parts add up.

    Attributes:
        begin: perf_counter time at which its head was there.
        read: perf_counter time at which its body, or a part of it, was there; 0: nothing is known.
        finished: perf_counter time at which the engine had finished the last of its work.
        head: perf_counter time at which its answer began; 0: it has not.
        num_works: how many works have been finished.
        parse_s, queue_s, encode_s, serialize_s: seconds in each stage, of all works together.
    """

    begin: float = field(default_factory=perf_counter)
    read: float = 0.0
    finished: float = 0.0
    head: float = 0.0
    num_works: int = 0
    parse_s: float = 0.0
    queue_s: float = 0.0
    encode_s: float = 0.0
    serialize_s: float = 0.0

    def finish_work(self, waited_s: float, encoded_s: float, now: float) -> None:
        """The engine has finished one work of the request."""
        self.queue_s += waited_s
        self.encode_s += encoded_s
        self.finished = now
        self.num_works += 1
