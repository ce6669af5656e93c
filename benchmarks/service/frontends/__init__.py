"""Several front ends beside one, each process on its own core.

`streams` makes the Arrow stream and the digest of its ids, `clients` starts a client process on
each core that the service does not use, and `__main__` proves the ids and measures in turns.
"""
