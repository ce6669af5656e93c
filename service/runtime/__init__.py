"""Memory, threads and files; knows no tokenization."""
