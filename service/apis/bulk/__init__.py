"""Bulk bodies: plain text, Arrow streams, FASTA and FASTQ."""
