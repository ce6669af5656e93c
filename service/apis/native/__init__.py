"""The native REST routes under /v1, health checks, and the page to try the service.

`tokens` declares encode, decode, count and windows; `vocabularies` manages vocabularies;
`training_jobs` and `training_upload` create and show training jobs; `service_info` has the health
checks, the metrics and the playground.

Called by HTTP clients; the application registers the routes.

Each error is a problem document with a stable code. The routes only check requests, call
operations, the registry or training, and make the answers.
"""
