"""HTTP bodies, streaming answers, error shapes and the ASGI fast path."""
