"""The reference: defines encoding and decoding by slow and simple Python code.

`tokenizer` contains encode and decode; `special_tokens` splits a text at special tokens and
normalizes the rest; `bpe`, `kmers` and `characters` implement the three models. `invalid_utf8`
encodes bytes that are not UTF-8.

Tests, self-tests of the engines, and engines call the reference, the latter for rows that they do
not support. The tables for the GPU are made from the merges in `bpe`. Tests compare the reference
with tiktoken, tokenizers and the published classes, and every engine with the reference. The code
is not optimized for speed.
"""
