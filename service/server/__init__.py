"""Assembles a service and runs it in one process.

`app` creates the application: engine, registry, batcher and routes. `lifespan` starts and stops its
background tasks. `uvicorn_server` runs the application on the sockets that `sockets` has bound.
`startup` contains constants and messages for the start of every process.

The callers are the command line and each process of a service with several processes.

Sockets are bound before anything large is loaded, so that a port in use is reported at once. A
service that stops refuses new requests, and ends when the accepted ones are answered.
"""
