"""Tables for byte-pair encoding of DNA letters (DNABERT-2, GENA-LM).

`tables` makes all tables of a vocabulary with the other modules: its alphabet and normalizers, the
pairs of tokens that may be neighbours, the longest token at each place, and the possible last
tokens of a text. `part_tables` adds those for small batches, with `repeat_table` for rows
that repeat a few letters.

`gpu/vocabulary` calls `prepare_dna` when a vocabulary is loaded, and the kernels of `cuda/dna` read
the tables. They need no device. A vocabulary that the kernels cannot encode exactly raises
`NotCovered`.
"""
