"""The tokenizer, the data set and the embedding modules of the mtDNA model, with its names.

The data set and the modules need torch, which is imported when one of them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vocabularies.sequences.mtdna import KmerVocabulary as KmerVocabulary
from vocabularies.sequences.mtdna import tokenize_sequence as tokenize_sequence
from vocabularies.sequences.mtdna import window_sequence as window_sequence
from vocabularies.sequences.statistics import TokenCounter as TokenCounter
from vocabularies.sequences.statistics import VocabularyStatistics as VocabularyStatistics
from vocabularies.sequences.statistics import vocabulary_statistics as vocabulary_statistics
from vocabularies.sequences.statistics_plot import plot as plot_statistics
from warptok.results import import_library

if TYPE_CHECKING:
    from gpu.embedding.mtdna import CircularPositionalEncoding as CircularPositionalEncoding
    from gpu.embedding.mtdna import HeteroplasmyProjection as HeteroplasmyProjection
    from gpu.embedding.mtdna import MtDNADataset as MtDNADataset
    from service.seqio.mtdna_dataset import read_mtdna_dataset as read_mtdna_dataset

_WITH_TORCH = {
    "CircularPositionalEncoding": "gpu.embedding.mtdna",
    "HeteroplasmyProjection": "gpu.embedding.mtdna",
    "MtDNADataset": "gpu.embedding.mtdna",
    "read_mtdna_dataset": "service.seqio.mtdna_dataset",
}
__all__ = [
    "KmerVocabulary",
    "TokenCounter",
    "VocabularyStatistics",
    "plot_statistics",
    "tokenize_sequence",
    "vocabulary_statistics",
    "window_sequence",
    *_WITH_TORCH,
]


def __getattr__(name: str) -> Any:
    """Import a name that needs torch.

    Raises:
        NotInstalled: torch is not installed.
    """
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_library("torch", f"warptok.mtdna.{name}")
    return getattr(import_module(_WITH_TORCH[name]), name)
