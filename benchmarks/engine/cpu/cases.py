"""The texts and sequences on which the CPU engine is timed beside the other libraries.

This module depends on no engine. A case has batches of one kind, whose ids are those of its text,
cut.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.engine.blocks.comparisons import batches_of
from benchmarks.support.corpora import make_corpus
from benchmarks.support.texts import Bytes, Text, character_begins, cut_rows, one_row

TEXT_VOCABULARIES = ("gpt2", "cl100k_base")
DNA_VOCABULARIES = ("dnabert2", "gena_lm_t2t_32k", "hyenadna", "nt_v2", "mtdna6", "dnabert1_6mer")
SHAPES = ((1, 200), (64, 1_000), (1_024, 2_000))
LONG_TEXT_BYTES = 700_000
NEW_TEXT_BYTES = 3 << 20  # Of fewer bytes than the files of a corpus, no paragraph repeats.
ROW_BASES = 512
MAX_BATCHES, MAX_BATCHES_BYTES = 16, 8 << 20
LONG_BATCHES = 16  # So many batches are one sequence.
GENOME, WITH_N = "ecoli_K12_MG1655.fa.gz", "human_GRCh37_chr22_20-21M.fa.gz"


@dataclass(frozen=True, slots=True)
class Case:
    """Batches of one kind and a vocabulary.

    Attributes:
        name: its name in the results.
        kind: "text" or "dna".
        vocabulary: the name of the vocabulary.
        batches: different ones, because some libraries cache texts.
        is_first_time: whether the last batch is timed right after the others, by an engine that
            has seen no other text.
    """

    name: str
    kind: str
    vocabulary: str
    batches: list[Text]
    is_first_time: bool = False

    @property
    def is_new_each_time(self) -> bool:
        """Return whether each call gets a new batch, which is needed if whole rows are words."""
        return self.kind == "dna" and len(self.batches) > 1

    @property
    def is_one_row(self) -> bool:
        """Return whether an engine has to cut a long row itself."""
        return self.name.startswith("one ")


def text_cases(folder: Path, corpus_bytes: int) -> Iterator[Case]:
    """Make the cases of text: batches of English, one long text, large corpora, and new text.

    Raises:
        FileNotFoundError: a file of the data folder is not there.
    """
    english = make_corpus("english", folder, corpus_bytes)
    texts = {
        f"{rows} x {row_bytes} B": _shape(english, rows, row_bytes) for rows, row_bytes in SHAPES
    }
    texts["one text of 700 kB"] = [one_row("long", english.data[:LONG_TEXT_BYTES])]
    texts["english"] = [english]
    for name in ("code", "languages", "hostile"):
        texts[name] = [make_corpus(name, folder, corpus_bytes)]
    for name, batches in texts.items():
        for vocabulary in TEXT_VOCABULARIES:
            yield Case(name, "text", vocabulary, batches)
    for name in ("english", "code", "languages", "hostile"):
        halves = _halves(make_corpus(name, folder, min(corpus_bytes, NEW_TEXT_BYTES)))
        for vocabulary in TEXT_VOCABULARIES:
            yield Case(f"{name}, first time", "text", vocabulary, halves, is_first_time=True)


def dna_cases(folder: Path, num_bases: int, num_batches: int) -> Iterator[Case]:
    """Make the cases of sequences: rows of a genome, and long sequences, one with runs of N.

    Raises:
        FileNotFoundError: a file of the data folder is not there.
    """
    genome = _sequence(folder / "dna" / GENOME)
    num_rows = num_bases // ROW_BASES  # No row repeats: the genome has no whole number of them.
    bases = np.resize(genome, num_batches * num_rows * ROW_BASES)
    rows = cut_rows("rows", bases, num_batches * num_rows, ROW_BASES)
    batches = list(batches_of(rows, num_rows))
    for vocabulary in DNA_VOCABULARIES:
        yield Case(f"{num_rows} x {ROW_BASES} bases", "dna", vocabulary, batches)
    for vocabulary in ("hyenadna", "mtdna6"):
        long = one_row("long", np.resize(genome, LONG_BATCHES * num_bases))
        yield Case("one sequence", "dna", vocabulary, [long])
    with_n = _sequence(folder / "dna" / WITH_N)[: LONG_BATCHES * num_bases]
    yield Case("one sequence with runs of N", "dna", "nt_v2", [one_row("with N", with_n)])


def _shape(english: Text, num_rows: int, row_bytes: int) -> list[Text]:
    count = max(1, min(MAX_BATCHES, MAX_BATCHES_BYTES // (num_rows * row_bytes)))
    data = np.resize(english.data, count * num_rows * row_bytes)
    return list(batches_of(cut_rows("shape", data, count * num_rows, row_bytes), num_rows))


def _halves(text: Text) -> list[Text]:
    middle = int(character_begins(text.data, np.array([len(text.data) // 2]))[0])
    return [one_row(text.name, text.data[:middle]), one_row(text.name, text.data[middle:])]


def _sequence(path: Path) -> Bytes:
    """Read the sequence of a FASTA file of one record."""
    _, *lines = gzip.decompress(path.read_bytes()).splitlines()
    return np.frombuffer(b"".join(lines), np.uint8)
