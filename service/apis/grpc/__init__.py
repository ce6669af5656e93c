"""The native calls over gRPC, in the process and event loop that also serve HTTP.

`server` starts and stops the server; `tokenizer` and `vocabularies` implement the service
warptok.v1.Tokenizer. `conversions` translates messages and values, `large_fields` reads and writes
bulk fields without protobuf's copies, and `status` turns errors into gRPC statuses.

Called by gRPC clients; the application's lifespan starts it when a gRPC port is set.

A call has the same limits, keys and results as its counterpart over HTTP, and goes through the
same batcher.
"""
