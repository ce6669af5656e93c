"""Decodes ids to bytes.

`decode` decodes a small batch in one workspace; `chunks` decodes a large one in chunks through the
pipeline of `large`. `gpu.engine` calls `decode.decode_rows`.

An id outside the vocabulary refuses its row alone; the bytes of the other rows are exact. Chunks
give up on an unknown id in a part of a row and on very long tokens; then the whole batch is decoded
in one workspace.
"""
