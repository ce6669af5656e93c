"""Reads MirGeneDB's mature miRNAs; makes the two tasks of the GeneticBPE paper and their splits.

Also the seeds that MirMachine lists for its families. This module depends on neither a tokenizer
nor a model.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vocabularies.motifs.bank import MotifBank
from vocabularies.sequences.corpus import Corpus

TASKS = ("BurBary", "MultiTop50")
SPECIES = {"human": "Hsa", "zebrafish": "Dre", "mouse": "Mmu", "fly": "Dme"}
MIN_SPECIES = 3  # Conserved: "present in > 2 species".
NUM_FAMILIES = 50
_NAME = re.compile(r"(?P<species>[A-Z][a-z]{2})-(?P<gene>.+)_(?P<arm>[35]p)\*?")
_MEMBER = re.compile(r"-[Pvo]\d.*$")  # Paralogues, variants and orthologues of a family.

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matures:
    """Sequences in the order of the file, spelled with T; species and family of each."""

    corpus: Corpus
    species: tuple[str, ...]
    families: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.corpus)


@dataclass(frozen=True, slots=True)
class Task:
    """A task: the rows int64[M] of its sequences, and their classes `labels` int64[M]."""

    name: str
    rows: Ints
    labels: Ints
    num_classes: int

    @property
    def majority(self) -> float:
        """The accuracy of a classifier that always predicts the most frequent class."""
        return float(np.bincount(self.labels).max() / len(self.labels))


def read_matures(path: Path) -> Matures:
    """Read a FASTA file of MirGeneDB; a name is like ``Hsa-Let-7-P1c_5p``.

    Raises:
        ValueError: a name is written otherwise; it is quoted.
    """
    sequences, species, families = [], [], []
    for record in path.read_text().split(">")[1:]:
        name, _, letters = record.partition("\n")
        found = _NAME.fullmatch(name.split()[0])
        if found is None:
            raise ValueError(f"{path}: {name!r} is no name of a mature miRNA")
        sequences.append("".join(letters.split()).upper())
        species.append(found["species"])
        families.append(_family(found["species"], found["gene"]))
    return Matures(Corpus.of(sequences).spelled("T"), tuple(species), tuple(families))


def read_family_seeds(path: Path) -> MotifBank:
    """Read the seeds of high confidence from MirMachine's table of families.

    Raises:
        ValueError: the file has no such table.
    """
    seeds: set[str] = set()
    with path.open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            try:
                if row["Confidence"] == "High conf":
                    seeds |= {row["Seed_5p"], row["Seed_3p"]} - {"NA"}
            except KeyError as error:
                raise ValueError(f"{path}: no column {error}") from None
    return MotifBank.of(seeds)


def _family(species: str, gene: str) -> str:
    """Return the family of a gene: Let-7 of Let-7-P1c; Novel-3 is a family of its own species."""
    family = _MEMBER.sub("", gene)
    return f"{species}-{family}" if family.startswith("Novel") else family


def task(matures: Matures, name: str) -> Task:
    """Make BurBary (is the family in over two species?) or MultiTop50 (which of 50 families?)."""
    if name == "BurBary":
        found = defaultdict(set)
        for species, family in zip(matures.species, matures.families, strict=True):
            found[family].add(species)
        labels = np.array([len(found[family]) >= MIN_SPECIES for family in matures.families])
        return Task(name, np.arange(len(matures)), labels.astype(np.int64), 2)
    counts = sorted(Counter(matures.families).items(), key=lambda item: (-item[1], item[0]))
    number = {family: i for i, (family, _) in enumerate(counts[:NUM_FAMILIES])}
    rows = np.array([i for i, family in enumerate(matures.families) if family in number])
    labels = np.array([number[matures.families[row]] for row in rows])
    return Task(name, rows, labels, NUM_FAMILIES)


def split(labels: Ints, seed: int) -> tuple[Ints, Ints, Ints]:
    """Split each class 80/10/10 into shuffled places for training, validation and test."""
    chance = np.random.default_rng(seed)
    parts: tuple[list[Ints], list[Ints], list[Ints]] = ([], [], [])
    for label in np.unique(labels):
        places = chance.permutation(np.flatnonzero(labels == label))
        tenth = (len(places) + 5) // 10
        cut = np.split(places, [tenth, 2 * tenth])
        for part, some in zip(parts, (cut[2], cut[0], cut[1]), strict=True):
            part.append(some)
    train, validation, test = (chance.permutation(np.concatenate(part)) for part in parts)
    return train, validation, test
