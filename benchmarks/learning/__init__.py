"""Training of vocabularies, and the GeneticBPE experiments."""
