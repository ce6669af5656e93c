"""BPE text on the CPU: by fastokens where it covers a vocabulary, by tokenizers otherwise.

cpu/selection.py chooses between the two encoders, and cpu/engine.py calls them through
`LongTextEncoder`, which cuts long rows into pieces at places from cut_points.py and
motif_cut_points.py. joined_short_texts.py encodes short texts as one. What fastokens computes
otherwise than the reference is worked around in fastokens_quirks/.

Always: the ids are those of each text alone and as a whole, however it was cut or joined; spans
that a library cannot give come from the reference.
"""
