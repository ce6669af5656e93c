"""Tables of byte-pair encoding of letters (DNABERT-2, GENA-LM); NumPy only."""
