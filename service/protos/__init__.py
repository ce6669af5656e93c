"""The messages of the gRPC services: .proto texts, what protoc made of them, and their classes.

`python -m service.protos.generate` makes the .binpb and .pyi files anew after a change. Classes are
built from the descriptors when they are imported, and not generated as code: generated code asks
for protobuf's runtime of its own version, descriptors work with every one.
"""
