"""DNA sequences: corpora, strands, windows, augmentation and the mtDNA model's tokenizer.

`corpus` holds the sequences that training and metrics read; `strand` reverses and complements a
batch; `windows` cuts the ids of a genome into overlapping windows, as `window_layout` decides from
options and a vocabulary; `channel` reads values for bases from a file; `augmentation` crops rows
and substitutes letters at random from a seed, as the GPU does; `mtdna` is that model's tokenizer
with the names of its published code; `statistics` counts which tokens occur, and `statistics_plot`
draws it.

The service's windows, training and users in Python call it. Everything works on flat NumPy arrays
and gives the same result on every machine.
"""
