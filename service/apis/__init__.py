"""The ways in, one package each."""
