"""Ids back to bytes."""
