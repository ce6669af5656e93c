"""Puts a service together and runs it in one process.

`app` makes the application: engine, registry, batcher and routes. `lifespan` starts and stops its
background tasks. `uvicorn_server` runs the application on the sockets that `sockets` has bound.
`startup` has constants and messages for the start of every process.

Called by the command line, and by each process of a service with several.

Sockets are bound before anything large is loaded, so that a port in use is reported at once. A stop
refuses new requests, and ends when the accepted ones are answered.
"""
