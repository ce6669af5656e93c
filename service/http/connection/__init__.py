"""uvicorn's protocol class, with a fast path for small calls and limits on slow clients.

`protocol` answers small calls from the HTTP parser's callbacks and passes everything else to
uvicorn; it closes connections that make no progress. `direct_call` has such a call: it
recognizes repeated heads by their bytes, and writes the answer at once. `upgrade_filter` declines
offers of HTTP/2. `connection_limits` limits how many connections there are. `tls` encrypts them.

Called by uvicorn, once for each connection.

All of this runs on the event loop's thread and never waits. A client gets the same answer by the
fast path as by uvicorn and the application.
"""
