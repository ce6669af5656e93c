"""The protocols that clients speak, one package for each.

`native` has the REST routes under /v1, `bulk` the calls whose bodies are not JSON, `grpc` the
native calls over gRPC, `oip` the Open Inference Protocol over HTTP and gRPC, and `dialects` the
routes of other systems.

Called by the application, which registers the routes and starts the gRPC server.

Protocols do not import each other, except that the native routes use `bulk`, and that the gRPC
server also serves the Open Inference Protocol. All of them share the operations and the registry.
"""
