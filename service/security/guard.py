"""Checks the key of each request, and whether its scopes allow the call.

    request ─► public? (probes, documentation) ─► yes
            └► a key? ─ none or unknown ─► 401
                 └► does it have the scope? ─ no ─► 403
                      └► is it within its rates? ─ no ─► 429
                           └► yes

Without a file of keys, a service on a loopback address allows every call. On any other address,
managing and training vocabularies is forbidden until keys are configured. Keys are compared in
constant time. This module depends on neither HTTP nor gRPC.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from pathlib import Path

from service.core.call import Scope
from service.core.errors import Forbidden, Unauthorized
from service.runtime.file_state import read_state
from service.security.api_keys import Key, read_keys
from service.security.rate_limits import Limits

logger = logging.getLogger(__name__)
GUARDED_EVERYWHERE: tuple[Scope, ...] = ("manage", "train")


def is_loopback(host: str) -> bool:
    """Return whether only local clients can reach a listening address; "none": a Unix socket."""
    if host in ("localhost", "none"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Checks the key of every request to one service.

    Args:
        path: the file of keys; None: no keys are needed.
        host: the address that the service listens on.
        allows_management: whether requests without a key may manage vocabularies and train.

    Attributes:
        limits: the rate limits of each key.
        generation: a number that grows with each change of the keys.
        is_stale: whether the file has changed since the keys were read, and could not be read.

    Raises:
        ValueError: the file is damaged.
    """

    def __init__(self, path: Path | None, host: str, *, allows_management: bool = True) -> None:
        self._path = path
        self._allows_management = allows_management
        self._is_loopback = is_loopback(host)
        try:
            self._keys = read_keys(path) if path is not None else []
        except ValueError as error:
            raise ValueError(f"WARPTOK_API_KEYS_FILE: {error}") from error
        self._state = read_state(path)
        self.limits = Limits()
        self.generation = 0
        self.is_stale = False
        self._set_limits()
        if path is None and not self._is_loopback and allows_management:
            logger.warning(
                "no keys: everybody who reaches %s may encode and decode; vocabularies cannot be "
                "managed, and none learnt, until WARPTOK_API_KEYS_FILE names keys",
                host,
            )

    @property
    def has_keys(self) -> bool:
        """Whether requests need a key."""
        return self._path is not None

    def check(self, presented: str | None, scope: Scope) -> str:
        """Check the key of a request, and return the key's name; "" if no key is needed.

        Args:
            presented: the key that the request contains.
            scope: the scope that the call needs.

        Raises:
            Unauthorized: the request has no valid key.
            Forbidden: the key lacks the scope, or the call needs keys and none are configured.
        """
        if scope in GUARDED_EVERYWHERE and not self._allows_management:
            raise Forbidden("this service allows no changes (setting management)")
        if self._path is None:
            if scope in GUARDED_EVERYWHERE and not self._is_loopback:
                raise Forbidden(
                    "no API keys are set, and the service is not on a loopback address",
                    "API_KEYS_FILE",
                )
            return ""
        if not presented:
            raise Unauthorized("send a key as Authorization: Bearer or as X-API-Key")
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found: Key | None = None
        for key in self._keys:  # Compare with all keys, so that the time reveals nothing.
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None:
            raise Unauthorized("the API key is unknown")
        if scope != "any" and scope not in found.scopes:
            raise Forbidden(f"the key {found.name} does not have the scope {scope}")
        return found.name

    def _set_limits(self) -> None:
        self.limits.set({key.name: key.rates for key in self._keys})

    def refresh(self) -> None:
        """Reload the file of keys if it has changed; if it is damaged, the old keys stay."""
        if read_state(self._path) != self._state:
            self.reload()

    def reload(self) -> None:
        """Reload the file of keys; if it is damaged, the old keys stay."""
        if self._path is None:
            return
        self._state = read_state(self._path)
        try:
            if self._path.is_fifo():  # Reading it would block.
                raise ValueError(f"{self._path}: is a pipe")
            self._keys = read_keys(self._path)
        except (OSError, ValueError) as error:  # The folder may be closed to this process.
            self.is_stale = True
            logger.error("the keys stay as they were: %s", error)
        else:
            self.is_stale = False
            self._set_limits()
            self.generation += 1
            logger.info("%d keys were read", len(self._keys))
