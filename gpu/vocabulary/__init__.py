"""Tables of a vocabulary on the device, whatever its family.

`device_tables` makes them from the tables of `text`, `kmers` or `dna`, with `special_tokens` and
`decode_table`, which all families have. `cache` puts them on the device and gives up the least
recently used where memory is short.

`gpu.engine` makes the cache; every call takes its vocabulary from it. A vocabulary stays until its
last running call is done, and is made again when it is needed. What kernels cannot compute raises
NotCovered.
"""
