"""DNA tokenizers and the embedding layer."""
