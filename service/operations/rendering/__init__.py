"""Answers as JSON, padding and offset units."""
