"""Several engines as one: a block goes to the one that has the least to do."""

from __future__ import annotations

import threading
from typing import Any

from service.corpus.gpus import Gpus
from vocabularies import builtin
from vocabularies.batch.batch import Batch, Encoded

VOCABULARY = builtin.load("hyenadna")


class Waiting:
    """An engine that keeps every batch until it is let go."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.may_end = threading.Event()

    def encode(self, vocabulary: Any, batch: Batch) -> Encoded:
        self.sizes.append(batch.size)
        assert self.may_end.wait(10)
        return Encoded(batch.data, batch.offsets)

    def close(self) -> None:
        self.sizes.append(-1)


def test_blocks_go_to_the_engine_with_the_fewest_bytes() -> None:
    engines = [Waiting(), Waiting(), Waiting()]
    gpus = Gpus(engines)  # type: ignore[arg-type]
    threads = []
    for number, size in enumerate((50, 10, 20, 30, 5, 1), 1):
        batch = Batch(["A" * size])
        threads.append(threading.Thread(target=gpus.encode, args=(VOCABULARY, batch)))
        threads[-1].start()
        while sum(len(engine.sizes) for engine in engines) < number:
            pass
    for engine in engines:
        engine.may_end.set()
    for thread in threads:
        thread.join()
    assert [engine.sizes for engine in engines] == [[50], [10, 30], [20, 5, 1]]
    gpus.encode(VOCABULARY, Batch(["A" * 7]))
    assert engines[0].sizes == [50, 7]
    gpus.close()
    assert [engine.sizes[-1] for engine in engines] == [-1, -1, -1]
