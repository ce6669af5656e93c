"""Byte-level BPE of text in C++: `encoder` is the encoder, `tables` makes its tables.

cpu/selection.py tries it first for a byte-level BPE whose pretokenizer it knows. native/ has the
extension: `windows.hpp` finds pretokens 64 bytes at a time and `automaton.hpp` those that it
leaves, `pieces.hpp` looks pretokens up and `merges.hpp` merges the rest; `rows.hpp` puts these
together for a text, and `batch.hpp` for a batch.

All ids are the reference's. `composer` puts rows in NFC, where the vocabulary does; rows for which
more is needed, such as tokens that are single words, are left to another encoder.
"""
