"""DNA sequences: corpora, strands, windows, augmentation and the mtDNA model's tokenizer.

`corpus` stores the sequences for training and metrics; `strand` computes the reverse complements of
a batch; `windows` cuts the ids of a genome into overlapping windows; `window_layout` checks the
options of windows against a vocabulary; `chunks` cuts the ids of a text into chunks; `channel`
reads values for bases from a file; `augmentation` crops rows and substitutes letters at random from
a seed, as the GPU does; `mtdna` is the mtDNA model's tokenizer with the names of its published
code; `statistics` counts how often tokens occur, and `statistics_plot` draws the counts.

The service, training and users in Python call these modules. Everything works on flat NumPy arrays
and gives the same result on every machine.
"""
