"""DNATok's embedding layer on torch: sequences in, embeddings out."""
