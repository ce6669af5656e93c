"""Tables of k-mer and character tokenizers; NumPy only."""
