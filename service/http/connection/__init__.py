"""uvicorn's protocol class, with a fast path for small calls and limits on idle clients.

`protocol` answers small calls from the HTTP parser's callbacks and passes everything else to
uvicorn; it closes connections that make no progress. `inline_call` is such a call, from its
repeated head, known by its bytes, to its answer in one write. `upgrade_filter` declines offers of
HTTP/2.

Called by uvicorn, once for each connection.

All of it runs on the event loop's thread and never waits. A client gets the same answer by the fast
path as by uvicorn and the application.
"""
