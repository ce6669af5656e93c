"""The embedding layer for torch: sequences in, embeddings out.

`layer` has `EmbeddingLayer` and `embed_from_strings`, which callers of the package use. A rule for
letters (`letter_rule`) is read from a tokenizer or found by asking it (`tokenizer_discovery`).
Ids are looked up by torch (`torch_lookup`) or by kernels (`kernel_lookup`), and rows are gathered
from the table (`row_gather`), or both happen in one kernel (`fused_embedding`).

Only this package imports torch. Embeddings are those that the upstream tokenizer's ids give.
"""
