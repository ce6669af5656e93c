"""Minutes of load with faults, after which the books of clients and service are compared.

`faults` are the faulty clients and the clients' books, `server` is the service with an engine that
runs out of memory on request, and `__main__` runs the rounds.
"""
