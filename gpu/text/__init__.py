"""Tables of byte-level BPE and its pretokenizer automaton; NumPy only."""
