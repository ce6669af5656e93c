"""Byte-pair encoding on the CPU with fastokens and tokenizers."""
