"""Tables for byte-pair encoding of DNA letters (DNABERT-2, GENA-LM).

`tables` makes all tables of a vocabulary, using the other modules: its `alphabet` and
`normalizers`, the tokens that may be neighbours (`compatible_pairs`), the longest token at each
position (`longest_prefix`), and the possible last tokens of a text (`last_tokens`,
`suffix_tables`). `whole_tokens` finds the tokens that match only a whole text. `part_tables` makes
the tables for small batches, and `repeat_table` those for rows that repeat a few letters.

`gpu/vocabulary` calls `prepare_dna` when a vocabulary is loaded, and the kernels of `cuda/dna` read
the tables. Making the tables needs no device. A vocabulary that the kernels cannot encode exactly
raises `NotCovered`.
"""
