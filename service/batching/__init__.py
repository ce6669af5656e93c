"""Waiting requests become batches."""
