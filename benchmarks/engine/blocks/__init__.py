"""The blocks of `python -m benchmarks.engine`, each of which measures one thing.

`bulk` has the blocks `kernels` and `host`, `comparisons` has `corpora` and `shapes`, `cliffs` has
`cliffs`, and `cold_starts` has `starts`. All get the same `session`: sizes, vocabularies, texts,
engine and proofs.

A block returns the pairs of text and vocabulary that it times, so that their ids are proved first.
"""
