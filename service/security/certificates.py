"""Reads the TLS certificate of the service, and reloads it when its files change.

HTTP and gRPC use the certificate that was read last for each new connection; open connections keep
theirs. This module depends on neither protocol.
"""

from __future__ import annotations

import logging
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import time

from service.core.settings import PREFIX, Settings
from service.runtime.file_state import State, read_state

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, as read from their files.

    Attributes:
        context: the SSL context for HTTP that uses the certificate.
        chain: the certificate and those that sign it, in PEM.
        key: the private key, in PEM.
        client_ca: the authorities that sign the certificates of clients, in PEM; None: clients
            need no certificate.
        expires_at: the time at which the certificate expires, in seconds since 1970.
    """

    context: ssl.SSLContext
    chain: bytes
    key: bytes
    client_ca: bytes | None
    expires_at: float


class _Fault(Exception):
    """A certificate or key file is invalid."""


def _check(is_right: bool, fault: str) -> None:
    if not is_right:
        raise _Fault(fault)


class Certificates:
    """The certificate of a service, which is reloaded from its files.

    Args:
        certificate: the path of the certificate.
        key: the path of its private key.
        client_ca: the path of the authorities that sign the certificates of clients; None: clients
            need no certificate.

    Attributes:
        current: the certificate that was read last.
        is_stale: whether its files have changed since, and could not be read.

    Raises:
        ValueError: a file cannot be read, or the key does not belong to the certificate.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._states = self._read_states()
        self.is_stale = False
        self.current = self._read()
        self._warn_if_expired()

    @classmethod
    def from_settings(cls, settings: Settings) -> Certificates | None:
        """Read the certificate of the settings; return None if they name none.

        Raises:
            ValueError: a file cannot be read, or the key does not belong to the certificate.
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
            for each in (self._certificate, self._key, self._client_ca):
                _check(each is None or not each.is_fifo(), "is a pipe, which cannot be read twice")
            chain = path.read_bytes()
            _check(b"CERTIFICATE-----" in chain, "has no certificate in PEM")
            setting, path = "TLS_KEY", self._key
            key = path.read_bytes()
            _check(b"PRIVATE KEY-----" in key, "has no private key in PEM")
            _check(b"ENCRYPTED" not in key, "the key has a password")
            # An empty password, so that OpenSSL does not ask for one at a terminal.
            context.load_cert_chain(self._certificate, self._key, lambda: "")
            if self._client_ca is not None:
                setting, path = "TLS_CLIENT_CA", self._client_ca
                client_ca = path.read_bytes()
                context.load_verify_locations(path)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # Includes SSLError.
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise ValueError(f"{PREFIX}{setting}: {path}: {reason or error}") from error
        except _Fault as fault:
            raise ValueError(f"{PREFIX}{setting}: {path}: {fault}") from fault
        return Certificate(context, chain, key, client_ca, read_expiry(chain))

    @property
    def remaining_s(self) -> float:
        """The seconds until the certificate expires; negative afterwards."""
        return self.current.expires_at - time()

    def _warn_if_expired(self) -> None:
        if self.remaining_s < 0:
            logger.warning("%s: expired; clients refuse it", self._certificate)

    def refresh(self) -> None:
        """Reload the files if they have changed; if they are damaged, the old certificate stays."""
        if self._read_states() != self._states:
            self.reload()

    def reload(self) -> None:
        """Reload the files; if they are damaged, the old certificate stays."""
        self._states = self._read_states()
        try:
            self.current = self._read()
        except ValueError as error:
            self.is_stale = True
            logger.error("the certificate stays as it was: %s", error)
        else:
            self.is_stale = False
            logger.info("the certificate was read again")
            self._warn_if_expired()

    def _read_states(self) -> list[State]:
        return [read_state(path) for path in (self._certificate, self._key, self._client_ca)]


PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
VERSION, UTC_TIME = 0xA0, 0x17  # Tags of DER.


def read_expiry(chain: bytes) -> float:
    """Return the time at which the first certificate of a PEM file expires, in seconds since 1970.

    The standard library decodes only certificates of peers, so this reads DER (RFC 5280, 4.1): in
    the first element are the version, if there is one, the number, the algorithm, the issuer, and
    then the two times.
    """
    found = PEM.search(chain)
    if found is None:  # It begins with BEGIN TRUSTED CERTIFICATE, which OpenSSL reads as well.
        return float("inf")
    data = ssl.PEM_cert_to_DER_cert(found[0].decode())
    _, begin, _ = _read_element(data, 0)
    tag, begin, end = _read_element(data, begin)
    tag, _, end = _read_element(data, begin)
    for _ in range(4 if tag == VERSION else 3):
        tag, begin, end = _read_element(data, end)
    _, _, end = _read_element(data, begin)
    tag, begin, end = _read_element(data, end)
    form = "%y%m%d%H%M%SZ" if tag == UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(data[begin:end].decode(), form).replace(tzinfo=UTC).timestamp()


def _read_element(data: bytes, begin: int) -> tuple[int, int, int]:
    """Return the tag of an element of DER, and where its content begins and ends."""
    tag, length, begin = data[begin], data[begin + 1], begin + 2
    if length & 0x80:
        num_bytes = length & 0x7F
        length = int.from_bytes(data[begin : begin + num_bytes], "big")
        begin += num_bytes
    return tag, begin, begin + length
