"""Puts a model's vocabulary and chat template into the store before the service starts.

    python store_model.py FOLDER NAME

It starts the service for this pod alone, uploads the files of the folder and stops it again. It
ends with the exit code 1 if the upload is refused.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
BOUNDARY = "end-of-a-file-9f2c61d84b"
START_TIMEOUT_S = 120
# On a loopback address nobody needs a key.
SETTINGS = {
    "WARPTOK_HOST": "127.0.0.1",
    "WARPTOK_ENGINE": "cpu",
    "WARPTOK_FRONTENDS": "0",
    "WARPTOK_LAME_DUCK_S": "0",
    "WARPTOK_PRELOAD": "none",
}
URL = "http://127.0.0.1:" + os.environ.get("WARPTOK_PORT", "8000")


def make_body(folder: Path) -> bytes:
    """Join the files that the folder has into one multipart body."""
    body = b""
    for name in FILES:
        path = folder / name
        if path.exists():
            body += f"--{BOUNDARY}\r\n".encode()
            body += f'Content-Disposition: form-data; name="f"; filename="{name}"\r\n\r\n'.encode()
            body += path.read_bytes() + b"\r\n"
    return body + f"--{BOUNDARY}--\r\n".encode()


def wait_ready(service: subprocess.Popen[bytes]) -> None:
    """Return when the service is ready.

    Raises:
        SystemExit: the service ended, or was not ready in time.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while service.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(URL + "/readyz", timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the service did not become ready")


def upload(folder: Path, name: str) -> None:
    """Upload the model's files under a name, in place of what has the name.

    Raises:
        SystemExit: the service refuses them; with its reason.
    """
    request = urllib.request.Request(
        f"{URL}/v1/vocabularies/{name}?replace=true",
        data=make_body(folder),
        headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request) as answer:
            print(answer.read().decode())
    except urllib.error.HTTPError as refusal:
        raise SystemExit(refusal.read().decode()) from refusal


def main() -> None:
    """Start the service, upload, and stop it."""
    folder, name = Path(sys.argv[1]), sys.argv[2]
    environment = {**os.environ, **SETTINGS}
    environment.pop("WARPTOK_API_KEYS_FILE", None)
    service = subprocess.Popen(["warptok", "serve"], env=environment)
    try:
        wait_ready(service)
        upload(folder, name)
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    main()
