"""The reference: encodes and decodes in plain Python, slowly and by definition.

`tokenizer` has encode and decode; `special_tokens` splits a text at special tokens and normalizes
the rest; `bpe`, `kmers` and `characters` encode by the three models. `invalid_utf8` encodes bytes
that are not UTF-8.

Tests and the engines' self-tests call it, and engines do for rows that they do not compute
themselves; the GPU's tables take the merges from `bpe`. Tests compare it with tiktoken, tokenizers
and the published classes, and every engine with it. Nothing here is written for speed.
"""
