"""Turns files of documents into files of token ids for training: `warptok corpus`.

    documents.py  documents, rows of ids, and rejected records
    inputs.py    finds, opens and digests the files
    reading/     files → blocks → documents, each with its place in its file
    encoding/    documents → rows of ids, by an engine; rows of one length
    writing/     rows → shards, in the formats of training frameworks
    parts/       one part of a job: does the three in threads, in order, with a checkpoint a shard
    job.py, run.py   the description of a job; its folder, parts and manifest
    runners/     where the parts run: in threads, in processes, on a cluster of Ray
    own_files.py     the files that jobs wrote, which are no inputs of others
    native/      C++ for lines of JSON, and for begin and end tokens

Called by `cli/corpus.py`; `warptok.ray` uses encoding, parts and writing. Invariants: the bytes
of a shard depend on the inputs, the vocabulary and the options alone, not on threads, engines or
interruptions; memory is bounded for any inputs; a shard appears under its name when it is whole.
"""
