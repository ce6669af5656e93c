"""Encoders for byte-pair encoding on the CPU with the library tokenizers.

cpu/selection.py chooses `tokenizers_encoder` for vocabularies that text/ and dna/ do not support.
It also encodes the rows that those two cannot encode. cpu/engine.py calls it through
`LongTextEncoder` (`long_text`), which cuts long rows into pieces at positions from `cut_points` and
`motif_cut_points`. `normalized_special_tokens` finds special tokens that normalizers make;
`library_threads` limits the library's threads.

The ids of a cut text are the same as those of the whole text. Spans that the library cannot compute
come from the reference.
"""
