"""DNA sequences: corpora, strands, windows, augmentation and the mtDNA model's tokenizer.

`corpus` holds sequences that training and measures read; `strand` reverses and complements a
batch; `windows` cuts the ids of a genome into overlapping windows; `augmentation` crops and
substitutes letters by a seed, as the GPU does; `mtdna` has the names of that model's own code.

The service's windows, training and users in Python call it. Everything works on flat NumPy arrays
and gives the same result on every machine.
"""
