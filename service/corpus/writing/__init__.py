"""Writes rows of ids as shards, in the formats of training frameworks.

    formats.py      which formats there are: their ids, and the writer of each
    shard_files.py  files that get their names when they are whole
    megatron.py     .bin and .idx of Megatron-LM
    flat.py         ids one after another: datatrove, NumPy, llm.c
    tables.py       Parquet and Arrow
    mds.py          MosaicML's streaming
    shuffled.py     puts the rows of a shard in another order

A writer gets rows in pieces of any size, and its bytes do not depend on the pieces. It knows no
text and no vocabulary but the number of its ids.
"""
