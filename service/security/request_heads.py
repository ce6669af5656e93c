"""Checks the version, the framing, the Host and the Origin of a request.

A web page can send requests to any address that its visitor's machine can reach. If the page is
served from a host name that resolves to 127.0.0.1 (DNS rebinding), it can also read the answers.
Therefore a service without keys answers only requests for its own host names, and pages of other
origins cannot change anything.

This module does not depend on a connection: the callers pass parsed heads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.core.call import Scope
from service.core.errors import (
    BadHead,
    HostRefused,
    OriginRefused,
    ServiceError,
    UnsupportedTransferCoding,
)
from service.core.settings import Settings
from service.security.addresses import split_names
from service.security.guard import GUARDED_EVERYWHERE, is_loopback
from service.security.scopes import HEALTH

HOST = re.compile(
    rb"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._~!$&'()*+,;=%-]+)(?::[0-9]{0,5})?", re.IGNORECASE
)
AUTHORITY = re.compile(rb"[a-z][a-z0-9+.-]*://([^/?#]*)", re.IGNORECASE)
TRANSFER_ENCODING = b"transfer-encoding"
READING = ("GET", "HEAD", "OPTIONS")
MAX_KNOWN = 256  # Size of the cache of allowed Host values, which are not parsed again.
Headers = Sequence[tuple[bytes, bytes]]


class HeadRules:
    """The rules that the heads of a service's requests must obey.

    Args:
        settings: the settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._allows_loopback = False
        self._allows_any_host = settings.allowed_hosts == "any"
        self._hosts: set[str] = set()
        if settings.allowed_hosts == "auto":
            is_open = settings.api_keys_file is None and is_loopback(settings.host)
            self._allows_loopback = is_open
            self._allows_any_host = not is_open
        elif not self._allows_any_host:
            self._hosts = {_normalize(name) for name in split_names(settings.allowed_hosts)}
        self._allows_any_origin = settings.allowed_origins == "any"
        self._origins = {name.lower() for name in split_names(settings.allowed_origins)}
        self._known: set[bytes] = set()

    def find_fault(self, version: str, url: bytes, headers: Headers) -> ServiceError | None:
        """Return why a request must be refused; None if it may be answered.

        Args:
            version: the HTTP version, such as "1.1".
            url: the request target.
            headers: the header fields; their names are in lower case.
        """
        fields = dict(headers)
        is_plain = version == "1.1" and len(fields) == len(headers) and url.startswith(b"/")
        if is_plain and fields.get(b"host") in self._known and TRANSFER_ENCODING not in fields:
            return None
        return self._find_fault(version, url, headers)

    def _find_fault(self, version: str, url: bytes, headers: Headers) -> ServiceError | None:
        if version not in ("1.1", "1.0"):
            return BadHead("the request line must end with HTTP/1.1 or HTTP/1.0")
        host: bytes | None = None
        for name, value in headers:
            if name == b"host":
                if host is not None:
                    return BadHead("there must be one Host", "Host")
                host = value
            elif name == TRANSFER_ENCODING and value.strip().lower() != b"chunked":
                return UnsupportedTransferCoding("only chunked is supported", "Transfer-Encoding")
            elif name == TRANSFER_ENCODING and version == "1.0":
                return BadHead("HTTP/1.0 has no chunks", "Transfer-Encoding")
        if host is None and version == "1.1":
            return BadHead("HTTP/1.1 needs a Host", "Host")
        fault = None if host is None else self._find_host_fault(host, url)
        if fault is None and (authority := AUTHORITY.match(url)) is not None:
            return self._find_host_fault(authority[1], url)
        return fault

    def _find_host_fault(self, host: bytes, url: bytes) -> ServiceError | None:
        if host in self._known:
            return None
        found = HOST.fullmatch(host)
        if found is None:
            return BadHead("this is no host", "Host")
        if self._is_allowed(_normalize(found["name"].decode())):
            if len(self._known) < MAX_KNOWN:
                self._known.add(host)
            return None
        if url.partition(b"?")[0].decode("latin-1") in HEALTH:  # Probes send an IP address.
            return None
        return HostRefused("the service does not answer for this name (allowed_hosts)", "Host")

    def _is_allowed(self, name: str) -> bool:
        if self._allows_any_host or name in self._hosts:
            return True
        return self._allows_loopback and (is_loopback(name) or name.endswith(".localhost"))

    def check_origin(self, method: str, needed_scope: Scope | None, headers: Headers) -> None:
        """Check the Origin of a request that may change vocabularies or training jobs.

        Raises:
            OriginRefused: a web page of another origin sends the request.
        """
        if needed_scope not in GUARDED_EVERYWHERE or method in READING or self._allows_any_origin:
            return
        fields = dict(headers)
        origin = fields.get(b"origin")
        if origin is None:
            return
        name = origin.decode("latin-1").lower()
        own = fields.get(b"host", b"").decode("latin-1").lower()
        if name not in self._origins and name.partition("://")[2] != own:
            raise OriginRefused(
                "pages of this origin may not make changes (setting allowed_origins)",
                "Origin",
            )


def _normalize(name: str) -> str:
    return name.lower().strip("[]").removesuffix(".")
