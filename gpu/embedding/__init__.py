"""The embedding layer for torch: sequences in, embeddings out.

Callers use `EmbeddingLayer` of `layer`, and `discover` of `tokenizer_discovery`. A rule for letters
(`letter_rule`) is read from a Vocabulary, or found by encoding texts with a tokenizer
(`upstream_tokenizer`, `discovery/`). `inputs` makes a batch of sequences in any form, whose text
`pinned_text` keeps for a device; `row_changes` crops and changes rows. `sequence_ids` computes the
ids, by torch or by kernels (`lookup/`), and `row_layout` places them in a matrix. Rows are gathered
from the table (`row_gather`); or one kernel does both (`fused_embedding`). `torch_kernels` launches
kernels on torch's streams. `micro_batch` plans how many rows are embedded at once. `mtdna` has the
mtDNA model's data set and the parts of its embedding.

Only this package imports torch. Embeddings equal those of the upstream tokenizer's ids.
"""
