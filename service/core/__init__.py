"""Modules that every other folder of the service uses: settings, errors and request data.

`settings` reads all settings from the environment. `errors` defines an exception for each reason to
refuse a request, with its code and HTTP status; `problem_details` converts exceptions to problem
documents. `call` reads the head of a request, and `context_vars` passes the request's id and client
to code that has no `Call`. `version` returns the installed version. `json_bodies` parses JSON that
contains halves of surrogate pairs, and `exact_json` parses JSON with integers beyond 64 bits.
`json_elements` extracts a list from a JSON body without parsing the elements. `extras` checks that
optional packages are installed.

No module here imports another folder of the service. Of the protocols, these modules use only the
names of headers.
"""
