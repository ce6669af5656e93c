"""Learns a vocabulary from a corpus: by BPE, or GeneticBPE where there are motifs.

`train` runs a training with progress and checkpoints (`checkpoint`); `options` has every option;
`nucleotides` makes T and U one letter; `layout` lays corpus and motifs out in slots; `merger` finds
and merges the best pair, on the CPU by `segmentation`, `pair_table` and `span_scores`; gpu.training
has a merger for the GPU.

The command line, the service's training jobs and benchmarks call it. Scores are integers and ties
go to the lowest ids, so the same input gives the same vocabulary on every machine.
"""
