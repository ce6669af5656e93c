"""Motifs: sequences that tokens should not split.

`bank` holds motifs with weights and finds their spans in a corpus; `files` reads banks and the
confidence of bases from FASTA, TSV, JSON or lines; `metrics` measures how many motifs a
tokenization splits.

Training, the command line and benchmarks call these modules. Weights are integers in thousandths,
so their sums do not depend on the order. Errors in a file have the line number. The package does
not depend on vocabularies.
"""
