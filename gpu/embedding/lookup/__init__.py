"""Looks up the ids of rows in the tables of a `LetterRule`.

`torch_lookup` looks up by torch on any device, and `kernel_lookup` by kernels on a CUDA device.
`run_lookup` looks up rows in which letters such as N divide the words.

Called by `sequence_ids` and `fused_embedding`. The ids equal those of `LetterRule.encode`, except
in rows that need the upstream tokenizer.
"""
