"""Byte-pair encoding of DNA letters (DNABERT-2, GENA-LM) in C++.

`tables` makes the arrays of a vocabulary with `gpu.dna`, which decides for both engines which
vocabularies have DNA letters. `encoder` is the encoder that cpu/selection.py tries first for these;
native/ is its C++ extension, which implements the algorithm.

All ids equal the reference's. The library tokenizers encodes the rows that the extension does not
support; they are counted by reason.
"""
