"""The mtDNA document: its statistics, windows and example of ids, on the data folder's genomes.

Source: mtdna-foundation-model, docs/02_tokenization.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.papers.session import Part, Row, Rows, Session
from benchmarks.support.timing import clocked
from vocabularies.sequences.mtdna import KmerVocabulary, tokenize_sequence, window_sequence
from vocabularies.sequences.statistics import vocabulary_statistics

GENOMES = {
    "50 human genomes (haplogrep3's examples)": "mtdna_haplogrep3_example_wgs.fa.gz",
    "the reference rCRS": "mtdna_rCRS_NC_012920.1.fa",
    "2 Denisovans and 3 Neanderthals": "mtdna_archaic_dev.fa",
}
REFERENCE = "mtdna_rCRS_NC_012920.1.fa"
MOST_FREQUENT = 5


def genomes_of(path: Path) -> list[str]:
    """Read the genomes of a FASTA file."""
    from service.seqio.reader import read_records

    return [record.data.decode() for record in read_records([str(path)], "sequences")]


def statistics_rows(session: Session) -> Rows:
    """Count the k-mers of the genomes, for the last table of the mtDNA document."""
    vocabulary = KmerVocabulary.build(k=6)
    for name, file in GENOMES.items():
        path = session.data / "dna" / file
        if not path.is_file():
            session.leave_out(f"dna/{file} is not in the data folder")
            continue
        genomes = genomes_of(path)
        found = vocabulary_statistics(genomes, vocabulary)
        yield {
            "table": "statistics",
            "genomes": name,
            "num_genomes": len(genomes),
            "seen": found.num_seen,
            "possible": found.num_possible,
            "mean_tokens": found.mean_tokens,
            "unknown_share": found.unknown_share,
            "most_frequent": [each.token for each in found.most_frequent(MOST_FREQUENT)],
        }
    session.leave_out("HmtDB, the document's 47,000 genomes, is not in the data folder")


def window_rows(session: Session) -> Rows:
    """Check the document's figures of the vocabulary, the windows and the junction."""
    path = session.data / "dna" / REFERENCE
    if not path.is_file():
        session.leave_out(f"dna/{REFERENCE} is not in the data folder")
        return
    [genome] = genomes_of(path)
    vocabulary = KmerVocabulary.build(k=6)
    windows = window_sequence(genome, vocabulary)
    tokens = tokenize_sequence(genome, vocabulary, max_seq_len=None, circular=True)
    found: dict[str, object] = {
        "ids of the vocabulary": len(vocabulary),
        "id of AAAAAA": vocabulary.encode("AAAAAA"),
        "id of TTTTTT": vocabulary.encode("TTTTTT"),
        "id of ACGTAN": vocabulary.encode("ACGTAN"),
        "bases of the genome": len(genome),
        "windows of the genome": len(windows.input_ids),
        "tokens of a window": windows.input_ids.shape[1],
        "k-mers of the circle": len(tokens["input_ids"]),
        "largest position": int(np.max(tokens["position_ids"])),
    }
    for name, value in found.items():
        yield {"table": "facts", "fact": name, "value": value}
    for name, work in _calls(genome, vocabulary).items():
        seconds = session.in_turns({name: clocked(work)})[name]
        row: Row = {"table": "speed", "call": name, "bases": len(genome), "seconds": seconds}
        yield row


def _calls(genome: str, vocabulary: KmerVocabulary) -> dict[str, Callable[[], object]]:
    ids = {"".join(kmer): i for i, kmer in enumerate(itertools.product("ACGT", repeat=6), 6)}

    def plain() -> list[int]:
        circle = genome + genome[:5]
        return [ids.get(circle[i : i + 6], 3) for i in range(len(genome))]

    return {
        "a dict of k-mers in Python": plain,
        "tokenize_sequence": lambda: tokenize_sequence(
            genome, vocabulary, max_seq_len=None, circular=True
        ),
        "window_sequence": lambda: window_sequence(genome, vocabulary),
    }


PARTS = (
    Part("statistics", "mtdna", "Vocabulary Statistics", "cpu", 60, statistics_rows),
    Part("windows", "mtdna", "Vocabulary Construction, Circular windowing", "cpu", 10, window_rows),
)
