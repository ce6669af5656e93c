"""The messages of the gRPC services: .proto files, their descriptors, and their classes.

`loading` builds the classes from the descriptors (.binpb) at import; the .pyi files describe them
to type checkers. `python -m service.protos.generate` writes both again after a .proto file changed.

Called by the gRPC server and by clients that import the classes.

No Python code is generated, because generated code needs protobuf's runtime of its own version,
while descriptors work with every version.
"""
