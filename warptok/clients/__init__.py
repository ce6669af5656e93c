"""Clients of a running service, with the same methods as `Tokenizer`.

`service_calls` builds the HTTP requests of each call and parses the answers; it sends nothing.
`client` and `async_client` send the requests through httpx and retry them by the policy in
`transport`. `grpc_calls` does the same for gRPC, and `grpc_client` and `async_grpc_client` send its
messages; `grpc_errors` converts gRPC errors.
"""
