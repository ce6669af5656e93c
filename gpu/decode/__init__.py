"""Ids back to bytes.

`decode` takes few ids through one workspace at once; `chunks` takes many through the pipeline of
`large`, several chunks in flight. `gpu.engine` calls `decode.decode_rows`.

An id that means nothing refuses its row alone, and the bytes of the others are exact. What chunks
cannot say (an unknown id in a part of a row, very long tokens) is decoded at once.
"""
