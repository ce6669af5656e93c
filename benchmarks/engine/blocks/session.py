"""The state that all blocks of one run share: sizes, vocabularies, texts, engine, proofs.

A block lists the ids that must be compared before it begins, and returns rows of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine.competitors import ENGINES
from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.engine.references.proofs import Pair, Proofs
from benchmarks.engine.references.published_vocabularies import Published
from benchmarks.support.corpora import make_corpus
from benchmarks.support.texts import Text

Row = dict[str, Any]
Shape = tuple[int, int]
"""Rows, and bytes of a row."""
SHAPES = ((1, 200), (64, 1_000), (1_024, 2_000), (65_536, 512), (256, 8_000), (1, 100_000_000))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the texts and how often each call is timed.

    Attributes:
        corpus_bytes: the size of each corpus.
        stream_bytes: the size of a stream, which repeats a corpus until its ends are negligible.
        front_bytes: the size of the front of a corpus for slow engines, with tens of MB per second.
        cliff_bytes: the sizes of texts of one piece.
        odd_bytes: the sizes of such a text in a batch of others.
        rounds: the turns of each call.
        slice_s: the shortest time of a turn, in seconds; faster calls are repeated in it.
        num_starts: the numbers of fresh processes with and without compiled kernels.
        shapes: the rows and bytes a row of batches.
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
    corpus_bytes=256 << 20,
    stream_bytes=1 << 30,
    front_bytes=2 << 20,
    cliff_bytes=(1 << 20, 10 << 20),
    odd_bytes=(16 << 10, 64 << 10),
    rounds=9,
    slice_s=0.02,
    num_starts=(3, 1),
    shapes=SHAPES,
)
QUICK = Sizes(
    corpus_bytes=64 << 20,
    stream_bytes=256 << 20,
    front_bytes=1 << 20,
    cliff_bytes=(1 << 20,),
    odd_bytes=(16 << 10,),
    rounds=5,
    slice_s=0.01,
    num_starts=(2, 1),
    shapes=SHAPES[:3],
)
TINY = Sizes(
    corpus_bytes=6_000,
    stream_bytes=12_000,
    front_bytes=3_000,
    cliff_bytes=(2_000,),
    odd_bytes=(1_000,),
    rounds=2,
    slice_s=0.0,
    num_starts=(1, 0),
    shapes=((1, 200), (4, 300)),
)
"""For the emulation."""


@dataclass(slots=True)
class Session:
    """One run.

    Attributes:
        data: the data folder.
        scratch: a folder for temporary files.
        vocabularies: the timed vocabularies by name; those of `main` are also compared with other
            libraries.
        engines: the names of the compared engines.
        log: prints the progress.
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
        pairs: lists the vocabularies and texts whose ids must be compared first.
        run: times the block and returns rows of the results.
    """

    pairs: Callable[[Session], list[Pair]]
    run: Callable[[Session], list[Row]]
