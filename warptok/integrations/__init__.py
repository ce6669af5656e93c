"""Stages for other projects' pipelines, each a module to itself.

    datatrove.py      DocumentTokenizer: the files of datatrove's own
    nemo_curator.py   MegatronTokenizerWriter: the files of NeMo Curator's own

A class has the name and the arguments of the one that it replaces, so that users change an import.
Nothing imports these modules but users, who have the other project installed.
"""
