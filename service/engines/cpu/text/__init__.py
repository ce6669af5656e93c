"""Byte-level BPE of text in C++: `encoder` is the encoder, `tables` makes its tables.

cpu/selection.py tries it first for a byte-level BPE whose pretokenizer it supports. native/
contains the extension: `windows.hpp` finds pretokens 64 bytes at a time, and `automaton.hpp` finds
those that it does not support; `pieces.hpp` looks pretokens up, first in `caches.hpp`, and
`merges.hpp` merges the others; `rows.hpp` combines these steps for a text, and `batch.hpp` for a
batch.

All ids equal the reference's. `composer` converts rows to NFC if the vocabulary requires it, and
`special_tokens` lists the special tokens that the extension matches.
Another encoder encodes rows that need more, such as those with tokens that match only whole words.
"""
