"""Runs minutes of load with faults, and compares the counts of clients and service afterwards.

`faults` has the faulty clients and the clients' counts, `server` is the service with an engine that
runs out of memory on request, and `__main__` runs the rounds.
"""
