"""The native calls over gRPC, in the process and event loop that also serve HTTP.

`server` starts and stops the server; `tokenizer` and `vocabularies` implement the service
warptok.v1.Tokenizer. `conversions` converts messages to values of the service and back,
`large_fields` reads and writes bulk fields without protobuf's copies, and `status` converts errors
to gRPC statuses.

The service starts the gRPC server unless the setting `grpc` is false.

A call has the same limits, keys and results as the corresponding HTTP call, and uses the same
batcher.
"""
