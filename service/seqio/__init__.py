"""Reads named texts out of FASTA, FASTQ and text files, packed by gzip or not.

`reader` is the entry point: it detects the format, unpacks, and gives records or batches. `fasta`,
`fastq` and `bgzf` parse one format each; `sequence_checks` refuses bytes that are no bases;
`corpus` collects the sequences that a training learns from; `mtdna_dataset` reads a data set for
torch, and is the only module here that needs it.

Called by the command line, by training, and by the routes whose bodies are FASTA.

Memory stays bounded for files of any size, except where one text is longer than a batch. Nothing
here imports another folder of the service, and a damaged file raises an error that names its place.
"""
