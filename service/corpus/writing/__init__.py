"""Writes rows of ids as shards, in the formats of training frameworks.

    formats.py      all formats: the type of ids, and the writer of each
    shard_files.py  files that are renamed when they are complete
    megatron.py     .bin and .idx of Megatron-LM
    flat.py         ids one after another: datatrove, NumPy, llm.c
    tables.py       Parquet and Arrow
    mds.py          MosaicML's streaming
    shuffled.py     puts the rows of a shard in another order

A writer receives rows in pieces of any size; the bytes of its files do not depend on the pieces. It
depends neither on texts nor on a vocabulary, except for the number of ids.
"""
