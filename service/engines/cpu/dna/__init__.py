"""Byte-pair encoding of DNA letters (DNABERT-2, GENA-LM) in C++.

`tables` makes the arrays of a vocabulary from `gpu.dna`, which decides for both engines which
vocabularies are of DNA letters. `encoder` is the encoder that cpu/selection.py tries first for
these; native/ is its C++ extension, which has the algorithm.

Every id is the reference's. Rows that the extension does not support are encoded by the library
tokenizers, and counted by reason.
"""
