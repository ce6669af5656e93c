"""Settings, errors, and the data of one call.

`settings` reads every setting from the environment; `errors` declares every refusal with its code
and status, and `problem_details` writes them as documents. `call` holds what an answer needs of its
request and reads it from the head; `counters` are numbers that only grow; `context_vars` carries
the request's id to log lines; `version` is the version.

Called by every other folder of the service.

It imports no other folder of the service and knows no protocol in particular.
"""
