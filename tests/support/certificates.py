"""Makes certificates for tests, by the program openssl."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Signed:
    """A self-signed certificate and its private key."""

    certificate: Path
    key: Path

    def trust(self) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts only this certificate."""
        return ssl.create_default_context(cafile=self.certificate)


def make_certificate(folder: Path, name: str, days: int = 2) -> Signed:
    """Make a certificate for localhost; skip the test where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    made = Signed(folder / f"{name}.pem", folder / f"{name}.key")
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    subject = ["-days", str(days), "-subj", f"/CN={name}", "-addext", NAMES]
    subprocess.run([openssl, "req", *kind, *files, *subject], check=True, capture_output=True)
    return made
