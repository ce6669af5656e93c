"""Schemathesis against a service of its own: `make schemathesis`.

It sends requests that it makes from openapi.json. Every answer, also a 5xx, must be one that
openapi.json describes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.server_process import server_process

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)
SETTINGS = {"WARPTOK_PRELOAD": "gpt2,gpn", "WARPTOK_DEFAULT_VOCABULARY": "gpn"}


def main() -> int:
    """Start the service, and run the program in the first argument with the other arguments."""
    program, *more = sys.argv[1:]
    with TemporaryDirectory() as folder, server_process(Path(folder), SETTINGS) as server:
        server.wait_ready()
        command = [program, "run", f"{server.url}/openapi.json", "--checks", CHECKS]
        command += ["--continue-on-failure", "--generation-deterministic", "--request-timeout=60"]
        return subprocess.run([*command, *(more or ["--max-examples=20"])]).returncode


if __name__ == "__main__":
    sys.exit(main())
