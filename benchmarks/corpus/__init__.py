"""Files of documents to shards on the disk, `warptok corpus` beside what others run.

    python -m benchmarks.corpus --data FOLDER --other-python PYTHON

`rivals.py` is run by the other Python, which has datatrove, megatron-core and datasets. `files.py`
makes the inputs, `processes.py` measures a command with its children, `limits.py` what the machine
allows. Ids are compared before anything is timed.
"""
