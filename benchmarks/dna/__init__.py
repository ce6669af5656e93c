"""Benchmarks of DNA tokenizers, of symbols on the device, and of the embedding layer.

`python -m benchmarks.dna` compares engines (`engines`) on shapes and genomes (`sequences`), and
`proofs` compares their ids with `fast_references`; `symbols` times characters,
k-mers and BPE of letters from device to device, `embedding` sequences to embeddings in torch.
"""
