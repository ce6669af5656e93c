"""Hugging Face's tokenizer.json, read and written."""
