"""uvicorn's protocol class with a fast path, timeouts and limits."""
