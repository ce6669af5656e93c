"""Batches of texts, their options and their encoded ids, as flat arrays.

`batch` has Batch, EncodeOptions, Encoded and the errors of rows, and joins strings (in C++ where
that is built); `post_processing` truncates and adds begin and end tokens; `ragged` has the index
arithmetic; `shared_rows` describes rows in memory of another process.

Both engines, the reference and the service call it. A refused row never refuses the others, and
the arrays of a result belong to the caller. Knows neither HTTP nor CUDA.
"""
