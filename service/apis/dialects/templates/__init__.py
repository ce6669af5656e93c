"""Renders the chat templates of vocabularies in separate processes.

`pool` gives each chat a free process; `queue` decides which chat is next. `process` starts, feeds
and kills one process, which runs `worker`; both share `memory`. `environment` sets up jinja2 as
templates expect it. `chat_messages` converts messages
of clients to the form that templates read, and `content_format` detects which form one reads.

Called by `chat_prompt` with a chat; the corpus command renders with
`environment` in its own process, as its template is that of the user who runs it.

A template is code that a client uploaded: it never runs in a process that answers requests.
"""
