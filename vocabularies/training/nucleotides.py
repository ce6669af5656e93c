"""Treats T and U as one letter, in a corpus and in the vocabulary that is learnt from it.

Only a corpus of nucleotides is changed; in other texts, T and U are two letters. This module does
not depend on merges.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.sequences.corpus import Corpus

IUPAC = frozenset("ACGTURYSWKMBDHVNacgturyswkmbdhvn")


class OneLetter(NamedTuple):
    """A corpus with only one of T and U, and the normalizers that change texts in the same way."""

    corpus: Corpus
    normalizers: tuple[Normalizer, ...]


def join_t_and_u(corpus: Corpus, alphabet: str | None) -> OneLetter:
    """Replace U by T or, if T is not a token, T by U; the same for u and t.

    Nothing changes if the corpus or the alphabet contains a letter that is not an IUPAC nucleotide
    code. A pair does not change if the alphabet contains both of its letters.

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
