"""Encoders of byte-pair encoding on the CPU by the library tokenizers.

cpu/selection.py chooses it for vocabularies that text/ and dna/ do not cover. It also encodes the
rows that those two cannot encode. cpu/engine.py calls it through `LongTextEncoder` (`long_text`),
which cuts long rows into pieces at positions from `cut_points` and `motif_cut_points`.

However a text is cut, its ids are those of the whole text alone. Spans that the library cannot give
come from the reference.
"""
