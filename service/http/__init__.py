"""HTTP below the routes: bodies, streaming answers, error shapes, and the fast path.

`asgi_fast_path` answers the frequent calls in front of FastAPI; `access` checks the key of every
request before. `request_body` counts bodies, `decompression` unpacks them, and `body_takeover`
receives large ones without copies. `streaming_response` and `backpressure` send answers while they
are made. `json_response` makes answers of JSON, `error_responses` shapes errors for each protocol,
and `openapi` describes them; `dependencies` gives routes their service.

Called by the routes and the application; its subpackage `connection` works below ASGI.

Every body is limited in bytes after decompression, and every wait for a client has a limit.
"""
