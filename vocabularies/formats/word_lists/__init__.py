"""Reads and writes k-mer and character vocabularies: vocab.txt, vocab.json, vocab_config.json.

`vocab_files` reads and writes plain lists of words; `published_rules` finds by the first tokens of
a list which published tokenizer it belongs to, and its rule; `kmer_config` reads and writes list
and rule in one JSON file.

`formats.vocabulary_files`, the built-in vocabularies and `sequences.mtdna` call it. A list that
would be read back as another vocabulary is not written.
"""
