"""HTTP below the routes: bodies, streaming answers, error shapes, and the fast path.

`asgi_fast_path` answers the frequent calls in front of FastAPI. `request_body` decompresses and
counts bodies, and `body_takeover` receives large ones without copies. `streaming_response` and
`backpressure` send answers while they are made. `refusals` and `error_responses` shape errors for
each protocol; `openapi` and `problem_schema` describe them.

Called by the routes and the application; its subpackage `connection` works below ASGI.

Every body is limited in bytes after decompression, and every wait for a client has a limit.
"""
