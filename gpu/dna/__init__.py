"""Tables of byte-pair encoding of letters (DNABERT-2, GENA-LM).

`tables` makes all of them for a vocabulary: its alphabet and normalizers, which tokens are
compatible, the longest token of each prefix, and what the latest letters leave as last tokens.
`one_launch_tables` has those of small batches. `gpu/vocabulary` calls `prepare_dna` when a
vocabulary is loaded; the kernels of `cuda/dna` read the tables.

NumPy only: nothing here knows a device. A vocabulary that the kernels cannot compute exactly is
refused with `NotCovered`.
"""
