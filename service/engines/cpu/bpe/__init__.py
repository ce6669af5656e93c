"""Encoders of byte-pair encoding on the CPU, by the libraries fastokens and tokenizers.

cpu/selection.py chooses fastokens where it covers a vocabulary, and tokenizers otherwise.
cpu/engine.py calls them through `LongTextEncoder` (`long_text`), which cuts long rows into pieces
at positions from `cut_points` and `motif_cut_points`. `joined_short_texts` joins short texts, which
are encoded faster together. fastokens_quirks/ has the workarounds for differences of fastokens.

However a text is cut or joined, its ids are those of the whole text alone. Spans that a library
cannot give come from the reference.
"""
