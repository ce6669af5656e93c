"""HTTP below the routes: bodies, streaming answers, error formats, and the fast path.

`access` checks the head and the key of every request, and `asgi_fast_path` answers the frequent
calls in front of FastAPI. `plain_routes` calls the functions of frequent routes without FastAPI.
`body/` reads bodies. `streaming_response` sends an answer while it is computed, and `backpressure`
limits its unsent bytes. `json_response` creates JSON answers, `error_responses` writes errors in
the format of each protocol, and `openapi` describes them. `cors` allows web pages of other origins
to read answers. `query_options` refuses unknown options, `names_in_paths` matches vocabulary names
in paths, and `dependencies` passes the service to routes.
`connection/` contains the protocol class of HTTP connections, below ASGI.

The routes and the application use these modules.

Every body has a size limit, which applies after decompression, and every wait for a client has a
time limit.
"""
