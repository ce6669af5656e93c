"""Trains vocabularies on texts or sequences: BPE, and BPE that keeps motifs whole."""

from vocabularies.motifs.bank import MotifBank as MotifBank
from vocabularies.sequences.corpus import Corpus as Corpus
from vocabularies.training.options import TrainingOptions as TrainingOptions
from vocabularies.training.train import train as train

__all__ = ["Corpus", "MotifBank", "TrainingOptions", "train"]
