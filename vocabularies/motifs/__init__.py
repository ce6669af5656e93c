"""Motifs: sequences that tokens should not split.

`bank` holds motifs with weights and finds their spans in a corpus; `files` reads banks and the
confidence of bases from FASTA, TSV, JSON or lines; `metrics` measures how many motifs a
tokenization splits.

Training, the command line and benchmarks call it. Weights are integers in thousandths, so sums are
the same in any order; a fault of a file names its line. Knows no vocabulary.
"""
