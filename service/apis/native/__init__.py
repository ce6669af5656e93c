"""The native REST routes under /v1, health checks, and the playground page.

`tokens` declares encode, decode, count, windows and chunks. `vocabularies` manages vocabularies,
and `aliases` their aliases. `training_jobs` and `training_upload` create and show training jobs.
`service_info` answers health checks, and returns metrics and the playground.

The application registers these routes.

Each error is a problem document with a stable code. The routes only check requests, call the
operations, the registry or the training, and create the answers.
"""
