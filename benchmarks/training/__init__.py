"""Benchmarks of training vocabularies, and the experiments of the GeneticBPE paper.

`trainers` times ours beside the trainer of `tokenizers`, on the CPU or with `trainers_gpu` on a
GPU. `genetic_bpe` makes the tables of the paper and `genetic_bpe_motifs` those that need no
classifier, both with the modules of `mirna/`.
"""
