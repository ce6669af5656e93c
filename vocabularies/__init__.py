"""What a vocabulary is and which ids it means; needs NumPy and regex only."""
