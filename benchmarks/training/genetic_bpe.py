r"""The experiments of the GeneticBPE paper on MirGeneDB's mature miRNAs, its figures beside ours.

    python -m benchmarks.training.genetic_bpe --data FOLDER --out FOLDER \
        [--device cuda --processes 8]

FOLDER of --data holds dna/mirgenedb_2.1_ALL-mat.fa, 17,599 sequences of 75 species, where the paper
had 20,861 of 114 (release 3.0), and dna/mirna_family_seeds_mirmachine.tsv. Without --seeds
only measurements without a model run: construction times and the splits of motifs. Every cell
that has ended is kept in FOLDER of --out, and a later call continues from there. --quick
trains two of them a little, to see that it runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.support.machine import machine
from benchmarks.training.mirna.lookup import lookups
from benchmarks.training.mirna.matures import TASKS, Matures, read_family_seeds, read_matures, task
from benchmarks.training.mirna.runs import EVERYWHERE, HUMAN, Cell, Encoded, Kept, Plan, results
from benchmarks.training.mirna.tables import tables
from benchmarks.training.mirna.tokenizers import VARIANTS, cut_out, seed_bank, tokenized
from vocabularies.motifs.bank import MotifBank, find_spans

MATURES, FAMILIES = "dna/mirgenedb_2.1_ALL-mat.fa", "dna/mirna_family_seeds_mirmachine.tsv"
CELLS = "genetic_bpe_cells.jsonl"
PACKAGES = ("numpy", "torch", "tokenizers", "warptok")
COMPARED = ("Char-Level", "k-mer (3)", "k-mer (4)", "UnigramLM", "BPE", "GeneticBPE")
PRESERVING = "GeneticBPE, spans preserved"
FULL, QUICK = (60, 8), (1, 1)


def main() -> None:
    """Measure, and write genetic_bpe.json and genetic_bpe.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = measure(
        read_matures(arguments.data / MATURES),
        read_family_seeds(arguments.data / FAMILIES),
        arguments.out,
        num_seeds=arguments.seeds,
        device=arguments.device,
        num_processes=arguments.processes,
        is_quick=arguments.quick,
    )
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (arguments.out / "genetic_bpe.json").write_text(text + "\n")
    (arguments.out / "genetic_bpe.md").write_text(tables(document))
    print(tables(document))


def measure(
    matures: Matures,
    families: MotifBank,
    out: Path,
    *,
    num_seeds: int,
    device: str = "cpu",
    num_processes: int = 1,
    is_quick: bool = False,
) -> dict[str, Any]:
    """Measure all figures and return them as one document; `out` keeps the cells that are done."""
    begin = perf_counter()
    names = ["GeneticBPE", PRESERVING] if is_quick else [*VARIANTS]
    tokenizers, encoded = _tokenizers(matures, families, names)
    about = machine(PACKAGES)
    epochs = QUICK if is_quick else FULL
    kept = Kept(out / CELLS, Plan(about["commit"], device, num_seeds, *epochs))
    cells = _cells(names) if num_seeds else []
    missing = [cell for cell in cells if cell not in kept.cells]
    for cell, measured in results(
        missing, matures, encoded, kept.plan, num_processes=num_processes
    ):
        kept.add(cell, measured)
        print(f"{len(kept.cells)}/{len(cells)} {perf_counter() - begin:.0f} s {cell}", flush=True)
    return {
        "machine": about | ({"device": _device_name()} if device == "cuda" else {}),
        "device": device,
        "seconds": perf_counter() - begin,
        "epochs": [*epochs],
        "sequences": len(matures),
        "species": len({*matures.species}),
        "tasks": {name: _about(matures, name) for name in TASKS},
        "lookups": [*lookups(matures, [*range(max(1, num_seeds))])],
        "tokenizers": tokenizers,
        "runs": [{**dataclasses.asdict(cell), **run} for cell in cells for run in kept.cells[cell]],
    }


def _device_name() -> str:
    import torch

    return str(torch.cuda.get_device_name())


def _about(matures: Matures, name: str) -> dict[str, Any]:
    found = task(matures, name)
    return {"sequences": len(found.rows), "majority": found.majority}


def _tokenizers(
    matures: Matures, families: MotifBank, names: list[str]
) -> tuple[dict[str, Any], dict[str, Encoded]]:
    corpus = matures.corpus
    anywhere = find_spans(seed_bank(corpus), corpus.data, corpus.offsets)
    chosen = cut_out(corpus)
    figures: dict[str, Any] = {}
    encoded = {}
    for name in names:
        found = tokenized(name, corpus, families, anywhere, chosen)
        encoded[name] = Encoded(found.ids, found.offsets, found.num_ids)
        figures[name] = {
            "num_ids": found.num_ids,
            "seconds": found.seconds,
            "by_place": dataclasses.asdict(found.by_place),
            "anywhere": dataclasses.asdict(found.anywhere),
            "cut_out": dataclasses.asdict(found.cut_out),
        }
    return figures, encoded


def _cells(names: list[str]) -> list[Cell]:
    """List the cells: every tokenizer on the binary task, compared ones on the other, too."""
    return [
        Cell(name, task_name, domain)
        for task_name in TASKS
        for name in names
        for domain in (EVERYWHERE, HUMAN)
        if task_name == TASKS[0] or name in (*COMPARED, PRESERVING)
    ]


if __name__ == "__main__":
    main()
