"""The CPU engine beside the other libraries; `python -m benchmarks.engine --engine cpu` runs it.

`cases` makes the texts and sequences, `comparison` proves and times them, and `other_tokenizers`
lets another Python take turns, with another version of tokenizers. Nothing here needs a GPU.
"""
