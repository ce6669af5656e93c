"""What all blocks of one run share: sizes, vocabularies, texts, the engine, the proofs.

A block says which ids must be proved before it begins, and then gives its rows of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine.competitors import ENGINES
from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.engine.proofs import Pair, Proofs
from benchmarks.engine.published_vocabularies import Published
from benchmarks.support.corpora import make_corpus
from benchmarks.support.texts import Text

Row = dict[str, Any]
Shape = tuple[int, int]
"""Rows, and bytes of a row."""
SHAPES = ((1, 200), (64, 1_000), (1_024, 2_000), (65_536, 512), (256, 8_000), (1, 100_000_000))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is timed.

    Attributes:
        corpus_bytes: of each corpus.
        stream_bytes: of streams: a corpus again and again, so that the ends do not count.
        front_bytes: of a corpus, for what does tens of megabytes a second.
        cliff_bytes: of texts of one piece.
        odd_bytes: of such a text in a batch of others.
        rounds: turns of each thing that is timed.
        slice_s: what is faster is run several times in a turn.
        num_starts: fresh processes that find their kernels compiled, and that do not.
    """

    corpus_bytes: int
    stream_bytes: int
    front_bytes: int
    cliff_bytes: Sequence[int]
    odd_bytes: Sequence[int]
    rounds: int
    slice_s: float
    num_starts: tuple[int, int]
    shapes: Sequence[Shape]


FULL = Sizes(
    *(256 << 20, 1 << 30, 2 << 20, (1 << 20, 10 << 20), (16 << 10, 64 << 10)),
    *(9, 0.02, (3, 1), SHAPES),
)
QUICK = Sizes(
    *(64 << 20, 256 << 20, 1 << 20, (1 << 20,), (16 << 10,)),
    *(5, 0.01, (2, 1), SHAPES[:3]),
)
TINY = Sizes(*(6_000, 12_000, 3_000, (2_000,), (1_000,), 2, 0.0, (1, 0), ((1, 200), (4, 300))))
"""For the emulation."""


@dataclass(slots=True)
class Session:
    """One run.

    Attributes:
        data: the data folder.
        scratch: a folder for files that are forgotten when the run ends.
        vocabularies: those that are timed, by their names; `main` are those that are timed against
            other libraries, too.
        engines: names of those that are put side by side.
        log: tells a person how far it is.
    """

    sizes: Sizes
    data: Path
    scratch: Path
    gpu: GpuWays
    vocabularies: dict[str, Published]
    main: Sequence[str]
    corpus_names: Sequence[str]
    proofs: Proofs
    log: Callable[[str], None] = print
    engines: Collection[str] = ENGINES
    emulate: bool = False
    corpora: dict[str, Text] = field(default_factory=dict)

    def corpus(self, name: str) -> Text:
        """Make a corpus, once."""
        if name not in self.corpora:
            self.corpora[name] = make_corpus(name, self.data, self.sizes.corpus_bytes)
        return self.corpora[name]

    @property
    def chosen_corpora(self) -> list[Text]:
        """Return the corpora that are timed."""
        return [self.corpus(name) for name in self.corpus_names]

    @property
    def main_vocabularies(self) -> list[Published]:
        """Return the vocabularies of `main`."""
        return [self.vocabularies[name] for name in self.main if name in self.vocabularies]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the benchmark that can be chosen.

    Attributes:
        pairs: what must be proved first.
        run: times and gives rows of the results.
    """

    pairs: Callable[[Session], list[Pair]]
    run: Callable[[Session], list[Row]]
