"""Makes T and U one letter, in a corpus and in the vocabulary that is learnt from it.

Knows no merges. Only a corpus of nucleotides is changed: in other texts T and U are two letters.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.sequences.corpus import Corpus

IUPAC = frozenset("ACGTURYSWKMBDHVNacgturyswkmbdhvn")


class OneLetter(NamedTuple):
    """A corpus with one spelling, and the normalizers that give texts the same spelling."""

    corpus: Corpus
    normalizers: tuple[Normalizer, ...]


def join_t_and_u(corpus: Corpus, alphabet: str | None) -> OneLetter:
    """Read T and U as one letter: T, or U where T is no token; t and u likewise.

    Nothing changes if the corpus or the alphabet holds a letter that is no nucleotide code of
    IUPAC, or for a pair of which both are in the alphabet.

    Args:
        corpus: the sequences.
        alphabet: the letters that are tokens; None: all letters of the corpus.

    Example: ACGU and ACCU keep their letters, and T is replaced by U in texts; ACGU and ACCT become
    ACGT and ACCT, and U is replaced by T in texts.
    """
    tokens = corpus.letters if alphabet is None else alphabet
    words = {letter for letter in corpus.letters + tokens if letter.isalpha()}
    if not words <= IUPAC:
        return OneLetter(corpus, ())
    pairs = [pair for pair in (("T", "U"), ("t", "u")) if {*pair} & {*tokens}]
    if alphabet is not None:
        pairs = [pair for pair in pairs if not {*pair} <= {*alphabet}]
    replaced = [(t, u) if t not in tokens else (u, t) for t, u in pairs]
    steps = tuple(Normalizer("replace", other, kept) for other, kept in replaced)
    if not any(other in corpus.letters for other, _ in replaced):
        return OneLetter(corpus, steps)
    table = np.arange(256, dtype=np.uint8)
    for other, kept in replaced:
        table[ord(other)] = ord(kept)
    return OneLetter(dataclasses.replace(corpus, data=table[corpus.data]), steps)
