"""Reads files into documents, a block at a time.

    line_blocks.py  cuts files of lines into blocks
    lines.py        the documents of a block: lines of JSON, or of text
    chats.py        renders chats to texts, with a mask of what a model learns
    tables.py       Parquet and Arrow
    sequences.py    FASTA and FASTQ
    readers.py      chooses among them; reads whole files of text

A reader yields functions without arguments, each of which returns the documents of one block;
threads call them. So the reader itself only does work that must be done in order, such as
decompression. A later reading may start at the place of any document, and returns the same
documents from there on.
"""
