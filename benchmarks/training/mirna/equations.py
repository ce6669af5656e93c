"""Computes Equations 5 to 8 of the GeneticBPE paper from measured distortion and compression.

The bounds of Equations 6 and 7 are taken as the paper states them; nothing here proves them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any, Literal

from benchmarks.training.mirna.corpora import Tokens, seeds
from benchmarks.training.mirna.matures import SPECIES, Matures
from benchmarks.training.mirna.runs import HUMAN
from benchmarks.training.mirna.tokenizers import SEED_REGION, SIZE, vocabulary_encoder
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

LONGEST_MOTIF = SEED_REGION[1] - SEED_REGION[0] + 1  # Alpha of Equation 7: letters of a seed.
BETAS = (1.0, 10.0)
LAMBDAS = (0.5, 1.0, 2.5, 5.0, 10.0)
MUS = (1.0, 2.0, 5.0, 10.0, 20.0)
PENALTIES: tuple[Literal["count", "binary"], ...] = ("count", "binary")


def capacity(compression: float) -> float:
    """Return C**-1/2, by which Equation 6 shrinks the capacity."""
    return float(compression**-0.5)


def domain_term(distortion: float) -> float:
    """Return alpha * delta, the distortion's part of Equation 7."""
    return LONGEST_MOTIF * distortion


def objective(distortion: float, compression: float, beta: float) -> float:
    """Return Equation 8: alpha * delta + beta * C**-1/2."""
    return domain_term(distortion) + beta * capacity(compression)


def candidates(corpus: Corpus) -> Iterator[dict[str, Any]]:
    """Yield distortion and compression of GeneticBPE over a grid of weights, for Equation 5."""
    for motif_weight, penalty_weight, penalty in product(LAMBDAS, MUS, PENALTIES):
        options = TrainingOptions(
            SIZE,
            motif_weight=motif_weight,
            penalty_weight=penalty_weight,
            penalty=penalty,
            seed_region=SEED_REGION,
        )
        vocabulary = train(corpus, options).vocabulary
        found = Tokens.of(corpus, vocabulary_encoder(vocabulary)).measure()
        counted = "" if penalty == "count" else ", binary"
        yield {
            "name": f"GeneticBPE (λ = {motif_weight:g}, μ = {penalty_weight:g}{counted})",
            "num_ids": len(vocabulary),
            "distortion": found.distortion[0],
            "compression": found.mean_compression,
        }


def discrepancies(matures: Matures) -> dict[str, float]:
    """Return how far the seeds of human sequences are from those of other species, 0 to 1.

    The paper does not define its motif discrepancy; this is the total variation distance of the
    seeds' frequencies.
    """
    own = seeds(matures.corpus)
    shares = {}
    for name, species in SPECIES.items():
        counts = Counter(
            seed for seed, its in zip(own, matures.species, strict=True) if its == species
        )
        shares[name] = {seed: count / counts.total() for seed, count in counts.items()}
    human = shares.pop(HUMAN)
    return {
        name: sum(abs(human.get(seed, 0) - other.get(seed, 0)) for seed in sorted({*human, *other}))
        / 2
        for name, other in shares.items()
    }
