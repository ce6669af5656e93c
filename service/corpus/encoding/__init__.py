"""Encodes documents to rows of ids.

    encoder.py       documents → rows, by an engine, with begin and end tokens, windows and masks
    engines.py       opens the engine: the CPU engine, or all GPUs
    gpus.py          several GPUs as one engine, which is the CPU engine until they are open
    packing.py       rows → rows of one length
    verification.py  compares the rows of some documents with the reference

Invariant: the ids do not depend on the engine, nor on how the documents are divided into blocks.
"""
