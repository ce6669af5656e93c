"""Batches of texts, their options and their encoded ids, as flat arrays.

`batch` defines Batch, EncodeOptions, Encoded and the errors of rows, and joins strings (in C++ if
the extension is built); `upper_case` converts letters first, `post_processing` truncates and adds
begin and end tokens; `ragged` computes indices; `shared_rows` describes rows in memory of another
process.

Both engines, the reference and the service call these modules. If a row is refused, the others are
still encoded. The caller owns the arrays of a result. The package does not depend on HTTP or CUDA.
"""
