"""Benchmarks of `warptok corpus`, from files of documents to shards, beside other programs.

    python -m benchmarks.corpus --data FOLDER --other-python PYTHON

`rivals.py` is run by the other Python, which has datatrove, megatron-core and datasets. `files.py`
makes the inputs, `processes.py` measures a command with its children, `limits.py` the limits of the
machine. `cluster.py` and `growth.py` are commands of their own: nodes of a cluster of Ray, and
files that grow. Ids are compared before anything is timed.
"""
