"""Learning a vocabulary from a corpus: BPE and GeneticBPE."""
