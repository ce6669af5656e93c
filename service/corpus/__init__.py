"""Turns files of documents into files of token ids for training: `warptok corpus`.

    reading/     files → blocks → documents, each with its place in its file
    encoding.py  documents → rows of ids, by an engine
    packing.py   rows → rows of one length
    writing/     rows → shards in the formats of training frameworks
    part.py      runs the four in threads, in order, with a checkpoint after each shard
    job.py, run.py   the description of a job; its parts, lock and manifest
    own_files.py     the files that jobs wrote, which are no inputs of others
    ray/         the parts on the nodes of a cluster

Called by `cli/corpus.py` only. Invariants: the bytes of a shard depend on the inputs, the
vocabulary and the options alone, not on threads, engines or interruptions; memory is bounded
for any inputs; a shard appears under its name when it is whole.
"""
