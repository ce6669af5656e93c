"""Decides which client may call what, and how often.

`api_keys` reads the file of named keys; `guard` finds the key of a request and the scopes that it
grants; `scopes` lists the scopes that each HTTP path and each gRPC method needs; `rate_limits`
counts requests and bytes for each key. `request_heads` checks the Host and the Origin of requests
over HTTP; `addresses` has the trusted proxies; `certificates` reads the certificate for TLS.

Called by the HTTP connection, the middleware of the application and the gRPC server, before a
request's body is read.

Without configured keys all clients may encode and decode, and on a loopback address also manage and
train. Keys are compared in constant time and never logged.
"""
