"""uvicorn's protocol class, with a fast path for small calls and limits on idle clients.

`protocol` answers small calls from the HTTP parser's callbacks, as `inline_call` and
`response_writer` describe them, and passes everything else to uvicorn. `head_cache` recognizes a
repeated head by its bytes, `idle_timer` closes connections that make no progress, and
`upgrade_filter` declines offers of HTTP/2.

Called by uvicorn, once for each connection.

All of it runs on the event loop's thread and never waits. A client gets the same answer by the fast
path as by uvicorn and the application.
"""
