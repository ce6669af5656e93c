"""The protocols that clients use, one package for each.

`native` contains the REST routes under /v1, `bulk` the calls whose bodies are not JSON, `grpc` the
native calls over gRPC, `oip` the Open Inference Protocol over HTTP and gRPC, and `dialects` the
routes of other systems.

The application registers the routes and starts the gRPC server.

Protocols do not import each other, with two exceptions: the native routes use `bulk`, and the gRPC
server also serves the Open Inference Protocol. All protocols share the operations and the registry.
"""
