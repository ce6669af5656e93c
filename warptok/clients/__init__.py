"""Clients of a running service, with the methods of a `Tokenizer`.

`service_calls` makes the requests of each call and reads their answers, and sends nothing; `client`
and `async_client` send them by httpx, and repeat them as `transport` decides. `grpc_client` has the
same methods over gRPC, whose errors `grpc_errors` reads.
"""
