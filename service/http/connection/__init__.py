"""uvicorn's protocol class, extended by a fast path for small calls and limits on slow clients.

`protocol` answers small calls in the callbacks of the HTTP parser and passes all other requests to
uvicorn; it closes connections that make no progress. `direct_call` contains such a small call: it
recognizes repeated heads by their bytes, and writes the answer at once. `upgrade_filter` declines
offers of HTTP/2. `connection_limits` limits the number of connections. `tls` encrypts them.

uvicorn creates a protocol object for each connection.

All code of this folder runs on the thread of the event loop and never waits. A client receives the
same answer from the fast path as from uvicorn and the application.
"""
