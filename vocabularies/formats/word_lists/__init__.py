"""Reads and writes k-mer and character vocabularies: vocab.txt, vocab.json, vocab_config.json.

`vocab_files` reads and writes plain lists of words. `published_rules` identifies the published
tokenizer of a list by its first tokens, and returns its rule. `kmer_config` reads and writes list
and rule in one JSON file.

`formats.vocabulary_files`, the built-in vocabularies and `sequences.mtdna` call these modules. A
list is not written if reading it would give another vocabulary.
"""
