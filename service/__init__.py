"""The service, which answers with token ids over HTTP and gRPC; the only user of FastAPI."""

import os

# Arrow reads it once, when it is imported. Its own allocator keeps pages for each thread that there
# was: 41 MiB after half a million requests, of which 15 KB were in use.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
