"""Runs one part of a job: some of its files, which become shards of their own.

    part.py        reads, encodes and writes, by the threads that all parts share
    ordered.py     runs tasks in threads, and yields their results in order
    shards.py      cuts rows into shards, and saves a checkpoint after each
    checkpoint.py  the file from which a later run continues
    rejects.py     the file of rejected records
    progress.py    counts the work of all parts, and shows it
    locks.py       locks a job's folder, and each part

Invariant: a part that continues from a checkpoint writes the shards that it would have written
without the interruption.
"""
