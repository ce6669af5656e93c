"""HTTP below the routes: bodies, streaming answers, error shapes, and the fast path.

`access` checks the head and the key of every request, and `asgi_fast_path` answers the frequent
calls in front of FastAPI. `body/` reads bodies. `streaming_response` and `backpressure` send
answers while they are made. `json_response` makes JSON answers, `error_responses` writes errors in
the form of each protocol, and `openapi` describes them. `cors` lets web pages read answers.
`query_options` refuses unknown options; `dependencies` gives routes their service. `connection`
works below ASGI.

Called by the routes and the application.

Every body is limited in bytes after decompression, and every wait for a client is limited in time.
"""
