"""k-mer and character vocabularies: vocab.txt, vocab.json and vocab_config.json.

`vocab_files` reads and writes plain lists of words; `published_rules` knows by a list's head which
published tokenizer it is of, and its rule; `kmer_config` has list and rule in one JSON file.

`formats.vocabulary_files`, the built-in vocabularies and `sequences.mtdna` call it. A list that
would be read back as another vocabulary is not written.
"""
