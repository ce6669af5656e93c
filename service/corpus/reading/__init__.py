"""Reads files into documents, a block at a time.

    line_blocks.py   cuts files of lines into blocks
    json_lines.py, text.py   documents of a block; a whole file of text
    tables.py        Parquet and Arrow
    sequences.py     FASTA and FASTQ
    readers.py       chooses among them

A reader yields functions without arguments; a thread that calls one gets the documents of a block.
So a reader itself only does work that must be done in order, such as decompression. Any place of a
document may be the start of a later reading, which gives the same documents from there on.
"""
