"""Small batches: one launch where that is possible."""
