"""What all blocks of one run share: sizes, vocabularies, texts, the engine, the proofs.

A block says which ids must be proved before it begins, and then gives its rows of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.corpora import CORPORA, make_corpus
from benchmarks.gpu_runs import GpuRuns
from benchmarks.proofs import Pair, Proofs
from benchmarks.texts import Text
from benchmarks.timed_vocabularies import TimedVocabulary
from benchmarks.witnesses import Witnesses

__all__ = ["FULL", "QUICK", "TINY", "Block", "Row", "Session", "Shape", "Sizes"]

Row = dict[str, Any]
Shape = tuple[int, int]
"""Rows, and bytes of a row."""
SHAPES = ((1, 200), (64, 1_000), (1_024, 2_000), (65_536, 512), (256, 8_000), (1, 100_000_000))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is timed.

    Attributes:
        corpus_bytes: of each corpus.
        slow_bytes: of a corpus, for what does a few megabytes a second.
        cliff_bytes: of a text of one piece.
        rounds: turns of each thing that is timed.
        slice_s: what is faster is run several times in a turn.
        num_starts: fresh processes of each kind.
    """

    corpus_bytes: int
    slow_bytes: int
    cliff_bytes: int
    rounds: int
    slice_s: float
    num_starts: int
    shapes: Sequence[Shape]


FULL = Sizes(128 << 20, 8 << 20, 10 << 20, 9, 0.05, 5, SHAPES)
QUICK = Sizes(32 << 20, 2 << 20, 1 << 20, 5, 0.02, 2, (*SHAPES[:3], *SHAPES[4:]))
TINY = Sizes(20_000, 5_000, 3_000, 2, 0.0, 1, ((1, 200), (4, 300), (1, 9_000)))
"""For the emulation."""


@dataclass(slots=True)
class Session:
    """One run.

    Attributes:
        data: the data folder.
        vocabularies: those that the engine covers, by their names; `main` are those that are timed
            against other libraries, too.
        log: tells a person how far it is.
    """

    sizes: Sizes
    data: Path
    gpu: GpuRuns
    vocabularies: dict[str, TimedVocabulary]
    main: Sequence[str]
    witnesses: Witnesses
    proofs: Proofs
    log: Callable[[str], None] = print
    corpus_names: Sequence[str] = tuple(CORPORA)
    _corpora: dict[str, Text] = field(default_factory=dict)

    def corpus(self, name: str) -> Text:
        """A corpus, made once."""
        if name not in self._corpora:
            self._corpora[name] = make_corpus(name, self.data, self.sizes.corpus_bytes)
        return self._corpora[name]

    @property
    def made_corpora(self) -> dict[str, Text]:
        """Those that were needed, by their names."""
        return self._corpora

    @property
    def corpora(self) -> list[Text]:
        """All corpora."""
        return [self.corpus(name) for name in self.corpus_names]

    @property
    def main_vocabularies(self) -> list[TimedVocabulary]:
        """Those of `main` that there are."""
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
