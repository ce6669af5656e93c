"""Reads the bodies of requests, with limits on their size and on their pace.

`request_body` reads a body, decompresses it (`decompression`) and counts its bytes. `takeover`
receives large bodies from the socket without copies. `pace` limits how slowly bodies may arrive.
`part_headers` reads the headers of the parts of a form.

The routes, the fast path and the connection use these modules; the connection limits the pace of
the small bodies that it reads itself.
"""
