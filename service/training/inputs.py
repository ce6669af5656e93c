"""The files beside a corpus that a training reads: motifs, and confidence of positions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from service.seqio.corpus import NamedCorpus
from vocabularies.motifs.bank import MotifBank
from vocabularies.motifs.files import read_confidence, read_motifs


def read_motif_file(path: str | None) -> MotifBank | None:
    """The bank of a file; None for none."""
    return None if path is None else read_motifs(path, Path(path).read_bytes())


def read_confidence_file(path: str | None, sequences: NamedCorpus) -> NDArray[np.int64] | None:
    """The confidence of each base out of a file; None for none."""
    if path is None:
        return None
    offsets = sequences.corpus.offsets
    return read_confidence(path, Path(path).read_bytes(), offsets, sequences.names)
