"""Learns a vocabulary from a corpus: by BPE, or by GeneticBPE if there are motifs.

`train` runs a training with progress reports and checkpoints (`checkpoint`); `options` defines the
options; `nucleotides` replaces U by T or T by U; `layout` stores the letters of the corpus and the
spans of motifs in slots; `merger` finds and merges the best pair, on the CPU with `segmentation`,
`pair_table` and `span_scores`; gpu.training contains a merger for the GPU.

The command line, the service's training jobs and benchmarks call these modules. Scores are
integers, and of equal scores the pair with the lowest ids is merged, so the same input gives the
same vocabulary on every machine.
"""
