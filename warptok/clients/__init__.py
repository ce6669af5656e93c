"""Clients of a running service, with the methods of a `Tokenizer`.

`service_calls` makes the requests of each call and reads their answers, and sends nothing; `client`
and `async_client` send them by httpx, and repeat them as `transport` decides. `grpc_calls` makes
the same calls over gRPC, which `grpc_client` and `async_grpc_client` send; `grpc_errors` reads
their errors.
"""
