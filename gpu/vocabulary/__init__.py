"""The tables of vocabularies, and the cache of vocabularies on the device.

`device_tables` makes all tables of a vocabulary: those of `text`, `kmers` or `dna`, and those of
`special_tokens` and `decode_table`, which every family has. `cache` copies them to the device and
evicts the least recently used vocabulary where memory is short.

`gpu.engine` makes the cache, and every call gets its vocabulary from it. A vocabulary stays on the
device until its last running call is done; an evicted one is made again when it is needed. A
vocabulary that the kernels do not support raises NotCovered.
"""
