"""Baselines without a classifier: the most frequent class, overall or among equal seeds.

Only accuracy above these baselines shows that a classifier has learnt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.mirna.matures import TASKS, Matures, task
from benchmarks.training.mirna.runs import EVERYWHERE, HUMAN, labels_of, parts
from benchmarks.training.mirna.tokenizers import SEED_REGION

Ints = NDArray[np.int64]


def lookups(
    matures: Matures, seeds: list[int], *, is_distinct: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield four shares of the sequences for every task, domain and test, one for each split.

    With `is_distinct` only the first of equal sequences counts, with its own class.

    - majority: sequences of the class that is most frequent in training;
    - known: sequences whose class occurs in training;
    - same: sequences that occur in training, equal in every letter;
    - seed: sequences whose class is the most frequent one in training among sequences with the same
      bases 2-8; where there are none, among all sequences.
    """
    begin, end = SEED_REGION[0] - 1, SEED_REGION[1]
    corpus = matures.corpus
    whole = np.array(
        [
            corpus.data[first:last].tobytes()
            for first, last in zip(corpus.offsets[:-1], corpus.offsets[1:], strict=True)
        ]
    )
    regions = np.array([sequence[begin:end] for sequence in whole])
    kept = np.sort(np.unique(whole, return_index=True)[1]) if is_distinct else None
    for name in TASKS:
        chosen = task(matures, name)
        if kept is not None:
            is_kept = np.isin(chosen.rows, kept)
            chosen = replace(chosen, rows=chosen.rows[is_kept], labels=chosen.labels[is_kept])
        labels = labels_of(matures, chosen)
        for domain in (EVERYWHERE, HUMAN):
            train, _, tests = parts(matures, chosen, domain, labels, seeds)
            for test, places in tests.items():
                shares = [
                    _shares(whole, regions, labels, *rows)
                    for rows in zip(train, places, strict=True)
                ]
                found = {key: [share[key] for share in shares] for key in shares[0]}
                yield {"task": name, "domain": domain, "test": test, **found}


def _shares(
    whole: NDArray[np.bytes_], regions: NDArray[np.bytes_], labels: Ints, train: Ints, test: Ints
) -> dict[str, float]:
    found: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
    for region, label in zip(regions[train].tolist(), labels[train].tolist(), strict=True):
        found[region][label] += 1
    [(majority, _)] = Counter(labels[train].tolist()).most_common(1)
    predictions = [
        found[region].most_common(1)[0][0] if region in found else majority
        for region in regions[test].tolist()
    ]
    of_tests = {
        "majority": labels[test] == majority,
        "known": np.isin(labels[test], labels[train]),
        "same": np.isin(whole[test], whole[train]),
        "seed": labels[test] == predictions,
    }
    return {key: float(values.mean()) for key, values in of_tests.items()}
