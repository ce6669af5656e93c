"""The corpora of the training benchmarks: published files, changed copies of them, and motifs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.corpora import numbers
from service.seqio.corpus import read_corpus
from vocabularies.motifs.bank import MotifBank
from vocabularies.sequences.corpus import Corpus

FILES = {
    "matures": ("mirgenedb_2.1_ALL-mat.fa",),
    "genomes": ("ecoli_K12_MG1655.fa.gz", "yeast_chrI.fa"),
    "lambda": ("lambda_NC_001416.fa",),
}
MILLION = 1_000_000
NUM_MOTIFS, SHORTEST_MOTIF = 10_000, 8
AT_ONCE = 1 << 24  # Letters, each of which takes tens of bytes while it is made.


def read_files(folder: Path) -> dict[str, Corpus]:
    """Read the corpora of FILES, in upper case."""
    return {
        name: read_corpus([str(folder / file) for file in files], upper=True).corpus
        for name, files in FILES.items()
    }


def copies(genome: Corpus, num_bases: int) -> Corpus:
    """Make one sequence of copies of the genome, each with a tenth of its bases changed."""
    letters = np.frombuffer(b"ACGT", np.uint8)
    data = np.resize(genome.data, num_bases)
    for begin in range(0, num_bases, AT_ONCE):
        part = data[begin : begin + AT_ONCE]
        drawn = numbers(7, len(part), begin)
        changed = drawn % 10 == 0
        changed[: max(0, len(genome.data) - begin)] = False
        part[changed] = letters[(drawn[changed] >> np.uint64(32)) % 4]
    return Corpus(data, np.array([0, num_bases]))


def bank_of(genome: Corpus, number: int = NUM_MOTIFS) -> MotifBank:
    """Make a bank of `number` stretches of a corpus, each 8 to 16 bases long."""
    found: dict[str, None] = {}
    for drawn in numbers(1, 2 * number).tolist():
        length = SHORTEST_MOTIF + drawn % 9
        place = (drawn >> 8) % (len(genome.data) - length)
        found[genome.data[place : place + length].tobytes().decode()] = None
        if len(found) == number:
            break
    return MotifBank.of(found)
