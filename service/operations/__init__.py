"""Encode, decode, count and windows: from a request to its answer."""
