"""The modules that every other folder of the service uses: settings, errors, data of a call.

`settings` reads every setting from the environment. `errors` declares every refusal with its code
and status, and `problem_details` writes refusals as documents. `call` reads the head of a request;
`context_vars` carries the request's id and client to code that has no `Call`. `version` is the
installed version. `json_bodies` reads JSON with halves of surrogate pairs, `exact_json` with
integers beyond 64 bits. `json_elements` takes a list out of a body without reading it.

Nothing here imports another folder of the service, or knows more of a protocol than its headers.
"""
