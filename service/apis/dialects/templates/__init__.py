"""Renders the chat templates of vocabularies in separate processes.

`pool` assigns each chat to a free process; `queue` decides which chat is next. `process` starts,
uses and kills one process, which runs `worker`; both share `memory`. `environment` sets up jinja2
as templates expect it. `chat_messages` converts clients' messages to the form that templates read,
and `content_format` detects which form a template reads.

`chat_prompt` passes chats to the pool. The corpus command renders with `environment` in its own
process, as its template belongs to the user who runs it.

A template is code that a client uploaded: it never runs in a process that answers requests.
"""
