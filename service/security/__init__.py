"""Decides which client may make which calls, and how often.

`api_keys` reads the file of named keys. `guard` finds the key of a request and checks its scopes.
`scopes` lists the scope that each HTTP path and each gRPC method needs. `rate_limits` limits
requests and bytes for each key. `request_heads` checks the Host and the Origin of HTTP requests.
`addresses` recognizes trusted proxies, and `certificates` reads the certificate for TLS.

The HTTP connection, the middleware of the application and the gRPC server call these modules before
they read the body of a request.

If no keys are configured, all clients may encode and decode; on a loopback address they may also
manage vocabularies and train. Keys are compared in constant time and never logged.
"""
