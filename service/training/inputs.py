"""Reads the additional files of a training: motifs, and the confidence of each base."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from service.seqio.corpus import NamedCorpus
from vocabularies.motifs.bank import MotifBank
from vocabularies.motifs.files import read_confidence, read_motifs


def read_motif_file(path: str | None) -> MotifBank | None:
    """Read motifs from a file; return None without a path."""
    return None if path is None else read_motifs(path, Path(path).read_bytes())


def read_confidence_file(path: str | None, sequences: NamedCorpus) -> NDArray[np.int64] | None:
    """Read the confidence of each base from a file; return None without a path."""
    if path is None:
        return None
    offsets = sequences.corpus.offsets
    return read_confidence(path, Path(path).read_bytes(), offsets, sequences.names)
