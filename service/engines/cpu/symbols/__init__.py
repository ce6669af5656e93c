"""Encodes characters and k-mers on the CPU with a C++ extension that processes whole batches.

`tables` makes the extension's tables by byte from those of `vocabularies.model.tables`; `encoder`
is an encoder of the CPU engine, which passes unsupported rows to the reference. `native/` is the
extension: it also encodes reverse complements, wraps circular sequences, and writes begin and end
tokens and spans. It does not support special tokens: the reference encodes rows that contain a byte
of one.
"""
