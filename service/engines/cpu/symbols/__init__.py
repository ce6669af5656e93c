"""Characters and k-mers on the CPU: a C++ extension that writes the ids of a whole batch.

`tables` makes its tables by byte from those of `vocabularies.model.tables`; `encoder` is an encoder
of the CPU engine and leaves few rows to the reference. `native/` is the extension: it also reads
the other strand, wraps circular sequences, and writes begin and end tokens and spans. It knows no
GPU and no special tokens: a row with a byte of one is left.
"""
