"""GeneticBPE: motifs and compression of Tables 1, 2 and 4, on all and on distinct matures.

Accuracies need classifiers, which `benchmarks.training.genetic_bpe` trains; incomplete and noisy
banks and Equations 5 to 8 are those of `benchmarks.training.genetic_bpe_motifs`. Their kept results
stand beside these in docs/papers.md.
"""

from __future__ import annotations

from benchmarks.papers.session import Part, Rows, Session
from benchmarks.training.genetic_bpe import FAMILIES, MATURES
from benchmarks.training.mirna.corpora import ALL, DISTINCT, TRANSFERRED, Tokens, distinct
from benchmarks.training.mirna.matures import read_family_seeds, read_matures
from benchmarks.training.mirna.published import ABLATION, OVERALL
from benchmarks.training.mirna.tokenizers import VARIANTS

NAMES = tuple(dict.fromkeys((*OVERALL, *ABLATION)))


def motif_rows(session: Session) -> Rows:
    """Learn each tokenizer of the tables, and measure its motifs and compression."""
    if not (session.data / MATURES).is_file() or not (session.data / FAMILIES).is_file():
        session.leave_out("MirGeneDB's matures are not in the data folder")
        return
    session.leave_out("MirGeneDB 3.0 is not in the data folder: 2.1 stands in")
    matures = read_matures(session.data / MATURES)
    families = read_family_seeds(session.data / FAMILIES)
    corpora = {ALL: matures.corpus, DISTINCT: distinct(matures.corpus)}
    for name in NAMES:
        for way, corpus in corpora.items():
            num_ids, encode = VARIANTS[name](corpus, families)
            measured = {way: Tokens.of(corpus, encode)}
            if way == ALL:
                measured[TRANSFERRED] = Tokens.of(corpora[DISTINCT], encode)
            for sequences, tokens in measured.items():
                found = tokens.measure()
                yield {
                    "table": "motifs",
                    "tokenizer": name,
                    "sequences": sequences,
                    "num_ids": num_ids,
                    "distortion": found.distortion[0],
                    "compression": found.mean_compression,
                    "split_rate": found.split_rate,
                    "preserved": found.preserved,
                }


PARTS = (Part("motifs", "geneticbpe", "Tables 1, 2 and 4 (motifs)", "cpu", 120, motif_rows),)
