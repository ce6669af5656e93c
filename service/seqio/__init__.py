"""Reads named texts from FASTA, FASTQ and text files, plain or gzip.

`reader` is the entry point: it detects the format (`format_detection`), decompresses, and returns
records or batches.
`fasta`, `fastq` and `bgzf` parse one format each; `sequence_checks` refuses bytes that are not
bases; `corpus` reads the sequences for a training; `mtdna_dataset` reads a data set for torch, and
is the only module that needs torch.

Called by the command line, by training, and by the routes whose bodies are FASTA.

Memory is bounded for files of any size, unless one text is longer than a batch. This package
imports no other package of the service. A damaged file raises an error that names the place of the
damage.
"""
