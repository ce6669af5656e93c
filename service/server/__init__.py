"""Puts a service together and runs it in one process.

`app` makes the application: engine, registry, batcher, routes, middleware. `lifespan` starts and
stops what runs in the background; `uvicorn_server` runs the application on sockets that `sockets`
has bound; `startup` holds what every process needs first.

Called by the command line, and by each process of a service with several.

A socket is bound before anything large is loaded, so that a port in use is told at once. A stop
refuses new requests, answers those that were accepted, and only then ends.
"""
