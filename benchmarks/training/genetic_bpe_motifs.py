r"""Measures the GeneticBPE paper's claims on motifs, without classifiers and on a CPU.

    python -m benchmarks.training.genetic_bpe_motifs --data FOLDER --out FOLDER

Every tokenizer of tables 1 and 2 on all matures of MirGeneDB and on the distinct ones; motif banks
that are incomplete or noisy (section 6.4); Equations 5 to 8; the points of Figure 2, whose gaps are
those that `genetic_bpe` measured (`--classifiers FILE`). FOLDER of --data is that of `genetic_bpe`.
It writes genetic_bpe_motifs.json and genetic_bpe_motifs.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.report.results import FOLDER
from benchmarks.support.machine import machine
from benchmarks.training.genetic_bpe import FAMILIES, MATURES, PACKAGES
from benchmarks.training.mirna.banks import bank_rows
from benchmarks.training.mirna.corpora import (
    ALL,
    DISTINCT,
    TRANSFERRED,
    Tokens,
    distinct,
    facts,
    whole_matures,
)
from benchmarks.training.mirna.equations import candidates, discrepancies
from benchmarks.training.mirna.gaps import gap_points
from benchmarks.training.mirna.lookup import lookups
from benchmarks.training.mirna.matures import Matures, read_family_seeds, read_matures
from benchmarks.training.mirna.motif_tables import tables
from benchmarks.training.mirna.tokenizers import VARIANTS
from vocabularies.motifs.bank import MotifBank

NUM_DRAWS = 3


def main() -> None:
    """Measure, and write genetic_bpe_motifs.json and genetic_bpe_motifs.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--classifiers", type=Path, default=FOLDER / "training/genetic_bpe.json")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = measure(
        read_matures(arguments.data / MATURES),
        read_family_seeds(arguments.data / FAMILIES),
        json.loads(arguments.classifiers.read_text()),
    )
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (arguments.out / "genetic_bpe_motifs.json").write_text(text + "\n")
    (arguments.out / "genetic_bpe_motifs.md").write_text(tables(document))
    print(tables(document))


def measure(
    matures: Matures,
    families: MotifBank,
    classifiers: dict[str, Any],
    names: tuple[str, ...] = tuple(VARIANTS),
    num_draws: int = NUM_DRAWS,
) -> dict[str, Any]:
    """Measure all figures and return them as one document."""
    begin = perf_counter()
    corpora = {ALL: matures.corpus, DISTINCT: distinct(matures.corpus)}
    tokenizers: dict[str, dict[str, Any]] = {}
    for name in names:
        tokenizers[name] = {}
        for way, corpus in corpora.items():
            num_ids, encode = VARIANTS[name](corpus, families)
            tokens = {way: Tokens.of(corpus, encode)}
            if way == ALL:
                tokens[TRANSFERRED] = Tokens.of(corpora[DISTINCT], encode)
            for measured, found in tokens.items():
                metrics = dataclasses.asdict(found.measure())
                tokenizers[name][measured] = {"num_ids": num_ids, **metrics}
    whole = {way: whole_matures(corpus) for way, corpus in corpora.items()}
    return {
        "machine": machine(PACKAGES),
        "corpora": {way: facts(corpus) for way, corpus in corpora.items()},
        "whole": whole,
        "tokenizers": tokenizers,
        "banks": {way: [*bank_rows(corpus, num_draws)] for way, corpus in corpora.items()},
        "candidates": {way: [*candidates(corpus)] for way, corpus in corpora.items()},
        "lookups": {
            way: [*lookups(matures, [*range(num_draws)], is_distinct=way == DISTINCT)]
            for way in corpora
        },
        "discrepancies": discrepancies(matures),
        "gaps": gap_points(classifiers),
        "gaps_measured": classifiers["machine"]["date"][:10],
        "seconds": perf_counter() - begin,
    }


if __name__ == "__main__":
    main()
