"""Word lists and k-mer configurations."""
