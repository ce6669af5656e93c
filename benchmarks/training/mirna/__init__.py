"""The experiments of the GeneticBPE paper on mature miRNAs.

`matures` reads the sequences and makes the paper's tasks, `tokenizers` trains the compared
tokenizers, `runs` trains the classifiers (`model`, `training`), and `tables` puts our figures
beside the paper's (`published`). `corpora`, `banks`, `equations`, `gaps` and `lookup` need no
classifier; `motif_tables` writes their figures.

Called by the commands `benchmarks.training.genetic_bpe` and `genetic_bpe_motifs`.
"""
