"""Readers of FASTA, FASTQ, BGZF and text files; knows no service."""
