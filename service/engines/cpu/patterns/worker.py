"""The program of a worker: encodes with one vocabulary, or times one regular expression.

`python -m service.engines.cpu.patterns.worker FD` answers the messages of a socket until it ends.
Each message contains the name of a call and `cpu_s`, the CPU time that the call may use. The
service kills the worker above this limit; the kernel does so a little later, in case the service
has ended.
"""

from __future__ import annotations

import math
import resource
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, pre_tokenizers

from service.engines.base import LibraryFailed
from service.engines.cpu.patterns.messages import Message, receive, send
from service.engines.cpu.selection import ChosenEncoder, choose_encoder
from service.engines.cpu.witness import Witness
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model.tables import token_table
from vocabularies.model.vocabulary import Vocabulary

KERNEL_S = 2  # The kernel ends a call so much later than the service does.


class Worker:
    """The state of a worker, and its calls by name."""

    def __init__(self) -> None:
        self.vocabulary: Vocabulary | None = None
        self.chosen: ChosenEncoder | None = None
        self.witness: Witness | None = None
        self.split: pre_tokenizers.Split | None = None
        self.calls: dict[str, Callable[[Message], Message]] = {
            "start": lambda _: Message({}),
            "load": self.load,
            "encode": self.encode,
            "decode": self.decode,
            "witness": self.find_ids,
            "compile": self.compile,
            "time": self.measure,
        }

    def answer(self, message: Message) -> Message:
        """Answer a message; if the call fails, the answer contains the error's kind and message."""
        try:
            return self.calls[message.values["call"]](message)
        except VocabularyError as error:
            faults = [[finding.where, finding.message] for finding in error.findings]
            return Message({"error": "vocabulary", "findings": faults})
        except LibraryFailed as error:
            return Message({"error": "library", "message": str(error)})
        except BaseException as error:  # A Rust panic is no Exception.
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            return Message({"error": "failed", "message": f"{type(error).__name__}: {error}"})

    def load(self, message: Message) -> Message:
        """Read the canonical form of a vocabulary, and choose its encoder."""
        self.vocabulary = read_canonical(message.arrays[0].tobytes())
        self.chosen = chosen = choose_encoder(self.vocabulary, token_table(self.vocabulary))
        test = chosen.self_test
        self_test = [test.witness, test.num_texts, test.num_different, test.first_difference]
        return Message(
            {
                "name": chosen.encoder.name,
                "self_test": self_test,
                "fallback_reason": chosen.fallback_reason,
            }
        )

    def encode(self, message: Message) -> Message:
        """Encode the rows of a batch."""
        assert self.chosen is not None
        options = EncodeOptions(**message.values["options"])
        batch = Batch(data=message.arrays[0], offsets=message.arrays[1], options=options)
        if message.values["has_texts"]:
            batch = Batch(batch.texts()[0], options=options)
        content = self.chosen.encoder.encode(batch, options)
        arrays: list[NDArray[Any]] = [content.ids.astype(np.int32, copy=False), content.offsets]
        if content.spans is not None:
            arrays.append(content.spans)
        return Message({"errors": _write_errors(content.errors)}, arrays)

    def decode(self, message: Message) -> Message:
        """Decode rows of ids with the library that defines them."""
        assert self.chosen is not None and self.chosen.decode is not None
        ids, offsets = message.arrays
        decoded = self.chosen.decode(ids, offsets, message.values["skip"])
        return Message({"errors": _write_errors(decoded.errors)}, [decoded.data, decoded.offsets])

    def find_ids(self, message: Message) -> Message:
        """Return the witness's ids of a text; null if the text is refused."""
        assert self.vocabulary is not None
        if self.witness is None:
            self.witness = Witness(self.vocabulary)
        return Message({"ids": self.witness.ids(message.values["text"])})

    def compile(self, message: Message) -> Message:
        """Compile the regular expression that `measure` runs."""
        self.split = pre_tokenizers.Split(Regex(message.values["pattern"]), "isolated")
        return Message({})

    def measure(self, message: Message) -> Message:
        """Run the regular expression over a text; return the seconds of CPU time."""
        assert self.split is not None
        text = message.arrays[0].tobytes().decode()
        begin = time.process_time()
        try:
            self.split.pre_tokenize_str(text)
        except BaseException as error:  # The library panics where a match has too many steps.
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        return Message({"seconds": time.process_time() - begin})


def _write_errors(errors: dict[int, Any]) -> list[list[Any]]:
    return [[row, error.code, error.message, error.where] for row, error in errors.items()]


def limit_processor_time(cpu_s: float) -> None:
    """Let the kernel kill this process after `cpu_s` more seconds of CPU time."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + cpu_s), most))


def main(file: int) -> None:
    """Answer messages until the socket ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker = Worker()
    with socket.socket(fileno=file) as sock:
        while True:
            try:
                message = receive(sock, lambda: None)
                limit_processor_time(message.values["cpu_s"] + KERNEL_S)
                send(sock, worker.answer(message), lambda: None)
            except (EOFError, ConnectionError):
                return


if __name__ == "__main__":
    main(int(sys.argv[1]))
