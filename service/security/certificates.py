"""Reads the certificate with which the service speaks TLS, and reads it again when it changes.

Both HTTP and gRPC use the certificate that was read last for each new connection; open ones keep
theirs. Knows neither of them.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from service.core.settings import PREFIX, Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate as it was read from its files.

    Attributes:
        context: speaks TLS with it; made for HTTP.
        chain: the certificate, and those that sign it, in PEM.
        key: its private key, in PEM.
        client_ca: the authorities that sign the certificates of clients, in PEM; None: clients
            need none.
    """

    context: ssl.SSLContext
    chain: bytes
    key: bytes
    client_ca: bytes | None


class _Fault(Exception):
    """A fault of a certificate or key file."""


def _check(is_right: bool, fault: str) -> None:
    if not is_right:
        raise _Fault(fault)


class Certificates:
    """The certificate of one service.

    Args:
        certificate: the file of the certificate.
        key: the file of its private key.
        client_ca: the file of the authorities of clients; None: clients need no certificate.

    Attributes:
        current: the certificate that was read last.

    Raises:
        ValueError: a file cannot be read, or the key is not that of the certificate.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._changed = self._read_modified()
        self.current = self._read()

    @classmethod
    def from_settings(cls, settings: Settings) -> Certificates | None:
        """Read the certificate that the settings name; None: they name none.

        Raises:
            ValueError: a file cannot be read, or the key is not that of the certificate.
        """
        certificate = settings.tls_certificate
        if certificate is None:
            return None
        return cls(certificate, settings.tls_key or certificate, settings.tls_client_ca)

    def _read(self) -> Certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        setting, path = "TLS_CERTIFICATE", self._certificate
        client_ca = None
        try:
            chain = path.read_bytes()
            _check(b"CERTIFICATE-----" in chain, "has no certificate in PEM")
            setting, path = "TLS_KEY", self._key
            key = path.read_bytes()
            _check(b"PRIVATE KEY-----" in key, "has no private key in PEM")
            _check(b"ENCRYPTED" not in key, "the key has a password")
            # An empty password, so that nobody is asked for one at a terminal.
            context.load_cert_chain(self._certificate, self._key, lambda: "")
            if self._client_ca is not None:
                setting, path = "TLS_CLIENT_CA", self._client_ca
                client_ca = path.read_bytes()
                context.load_verify_locations(path)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # An SSLError is one.
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise ValueError(f"{PREFIX}{setting}: {path}: {reason or error}") from error
        except _Fault as fault:
            raise ValueError(f"{PREFIX}{setting}: {path}: {fault}") from fault
        return Certificate(context, chain, key, client_ca)

    def refresh(self) -> None:
        """Read the files again if they have changed; damaged ones change nothing."""
        if self._read_modified() != self._changed:
            self.reload()

    def reload(self) -> None:
        """Read the files again; damaged ones change nothing."""
        self._changed = self._read_modified()
        try:
            self.current = self._read()
        except ValueError as error:
            logger.error("the certificate stays as it was: %s", error)
        else:
            logger.info("the certificate was read again")

    def _read_modified(self) -> list[tuple[int, int]]:
        """Return when each file was modified, and its inode; a link's are its target's."""
        paths = [self._certificate, self._key, self._client_ca]
        modified = []
        for path in paths:
            try:
                status = path.stat() if path is not None else None
            except OSError:
                status = None
            modified.append((status.st_mtime_ns, status.st_ino) if status else (0, 0))
        return modified
