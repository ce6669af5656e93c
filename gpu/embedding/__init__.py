"""The embedding layer for torch: sequences in, embeddings out.

Callers use `EmbeddingLayer` of `layer`, and `discover` of `tokenizer_discovery`. A rule for letters
(`letter_rule`) is read from a Vocabulary, or found by encoding `probe_texts` with a tokenizer
(`upstream_tokenizer`). Ids are looked up by torch or by kernels (`lookup/`), and rows are gathered
from the table (`row_gather`); or one kernel does both (`fused_embedding`). `micro_batch` plans how
many rows are embedded at once. `mtdna` has the mtDNA model's data set and the parts of its
embedding.

Only this package imports torch. Embeddings equal those of the upstream tokenizer's ids.
"""
