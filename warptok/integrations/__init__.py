"""Classes that replace the tokenization stages of other projects, one module for each project.

    datatrove.py      DocumentTokenizer writes the same files as datatrove's class
    nemo_curator.py   MegatronTokenizerWriter writes the same files as NeMo Curator's class

Each class has the name and the arguments of the class that it replaces, so that users only change
an import. No other module imports these two, as each requires its project to be installed.
"""
