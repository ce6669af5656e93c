"""Vocabularies by name, and their store."""
