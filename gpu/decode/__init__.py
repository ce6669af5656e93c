"""Decodes ids to bytes.

`decode` decodes a small batch in one workspace; `chunks` decodes a large one in chunks through the
pipeline of `large`. `gpu.engine` calls `decode.decode_rows`.

An unknown id, one outside the vocabulary, refuses only its row. Decoding in chunks stops if a part
of a row has an unknown id, or if the tokens are very long; the whole batch is then decoded in one
workspace.
"""
