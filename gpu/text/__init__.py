"""Tables for byte-level BPE and its pretokenizers.

`bpe_tables` makes the tables of a vocabulary: symbols by number (`bpe_symbols`), tokens and pairs
by hash (`hash_table`, `hash_functions`), runs of one byte (`byte_runs`, `byte_run_period`),
characters without a token (`cjk_characters`) and certain boundaries (`boundary_filter`);
`reachable_tokens` finds the tokens that merges reach. `pretokenizer_automaton` makes the automata
of `pretokenizer_rules`, and `nfc_check` the tables that show whether a text is in NFC.

`gpu/vocabulary` calls them when a vocabulary is loaded; the kernels of `cuda/text` read the tables.
NumPy only, without a device.
"""
