"""The oracle: encodes and decodes in plain Python, slowly and by definition.

`tokenizer` has encode and decode; `special_tokens` splits a text at special tokens and normalizes
the rest; `bpe`, `kmers` and `characters` encode by the three models.

Tests, the engines' self-tests and the few rows that an engine hands on call it; the GPU's tables
take the merges from `bpe`. It is compared with tiktoken, tokenizers and the published classes,
and every engine is compared with it. Speed decides nothing here.
"""
