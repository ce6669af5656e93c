"""Who may do what: named keys with scopes, told apart in constant time, read from a file.

    request ─► open to all? (probes, documentation) ─► yes
            └► a key? ─ none or unknown ─► 401
                 └► has it the scope? ─ no ─► 403
                      └► within its rates? ─ no ─► 429
                           └► yes

Without a file of keys everything is open on a loopback address; on any other one vocabularies
cannot be managed until there are keys. Knows neither HTTP's headers nor gRPC's metadata.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
import math
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.core.call import Scope
from service.core.errors import Forbidden, Unauthorized
from service.runtime.atomic_files import Store
from service.security.rate_limits import UNLIMITED, Limits, Rates

logger = logging.getLogger(__name__)
SCOPES: tuple[Scope, ...] = ("encode", "decode", "manage", "train")
GUARDED_EVERYWHERE: tuple[Scope, ...] = ("manage", "train")
RATES = ("requests_per_s", "bytes_per_s")
KEY_BYTES = 32
PREFIX = "wt-"


@dataclass(frozen=True, slots=True)
class Key:
    """One client's key.

    Attributes:
        name: for logs and metrics.
        digest: SHA-256 of the key; the key itself is nowhere.
        scopes: what it may do.
        rates: how much of it in a second.
    """

    name: str
    digest: bytes
    scopes: frozenset[Scope]
    rates: Rates = UNLIMITED


def new_key(
    name: str, scopes: tuple[Scope, ...], rates: Rates = UNLIMITED
) -> tuple[str, dict[str, Any]]:
    """A new secret, and its entry for the file of keys."""
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    digest = hashlib.sha256(key.encode()).hexdigest()
    limited = {rate: value for rate in RATES if (value := getattr(rates, rate)) is not None}
    return key, {"name": name, "sha256": digest, "scopes": list(scopes), **limited}


def add_key(path: Path, name: str, scopes: tuple[Scope, ...], rates: Rates = UNLIMITED) -> str:
    """Put a new key into a file of keys, which is made if need be; the secret.

    Raises:
        ValueError: the file is wrong, or has this name already.
    """
    entries: list[dict[str, Any]] = []
    if path.exists():
        if any(key.name == name for key in read_keys(path)):
            raise ValueError(f"{path}: there is a key {name} already")
        entries = json.loads(path.read_text(encoding="utf-8"))
    secret, entry = new_key(name, scopes, rates)
    Store(path.parent).write(path.name, json.dumps([*entries, entry], indent=1).encode())
    return secret


def read_keys(path: Path) -> list[Key]:
    """The keys of a file: a JSON list of {"name", "sha256", "scopes"} and perhaps rates.

    Raises:
        ValueError: the file cannot be read or is wrong; the message has the place.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no JSON: {error}"
        raise ValueError(f"{path}: {reason}") from error
    if not isinstance(entries, list):
        raise ValueError(f"{path}: must be a list of keys")
    keys = [_key(f"{path}: key {number}", entry) for number, entry in enumerate(entries)]
    for what in ("name", "digest"):
        values = [getattr(key, what) for key in keys]
        if len(set(values)) < len(values):
            raise ValueError(f"{path}: two keys have the same {what}")
    return keys


def _key(where: str, entry: Any) -> Key:
    needed = {"name", "sha256", "scopes"}
    if not isinstance(entry, dict) or not needed <= entry.keys() <= needed | set(RATES):
        may = " and ".join(RATES)
        raise ValueError(f"{where}: must have name, sha256 and scopes, may have {may}, and no more")
    name, digest, scopes = entry["name"], entry["sha256"], entry["scopes"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}: the name must be a text")
    try:
        raw = bytes.fromhex(digest) if isinstance(digest, str) else b""
    except ValueError:
        raw = b""
    if len(raw) != hashlib.sha256().digest_size:
        raise ValueError(f"{where}: sha256 must be 64 hexadecimal digits")
    if not isinstance(scopes, list) or not scopes or not set(scopes) <= set(SCOPES):
        raise ValueError(f"{where}: scopes must be some of {', '.join(SCOPES)}")
    for rate in entry.keys() & set(RATES):
        value = entry[rate]
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise ValueError(f"{where}: {rate} must be a positive number")
    rates = Rates(entry.get("requests_per_s"), entry.get("bytes_per_s"))
    return Key(name, raw, frozenset(scopes), rates)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address that is listened on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Decides about every request of one service.

    Args:
        path: the file of keys; None: there are none.
        host: the address that is listened on.

    Attributes:
        limits: what each key may still ask for.
        generation: another number after each change of the keys.

    Raises:
        ValueError: the file is wrong.
    """

    def __init__(self, path: Path | None, host: str) -> None:
        self._path, self._is_loopback = path, is_loopback(host)
        try:
            self._keys = read_keys(path) if path is not None else []
        except ValueError as error:
            raise ValueError(f"WARPTOK_API_KEYS_FILE: {error}") from error
        self._changed = self._modified()
        self.limits = Limits()
        self.generation = 0
        self._set_limits()
        if path is None and not self._is_loopback:
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
        """The name of the key, "" where none is needed.

        Raises:
            Unauthorized: a key is needed, and this is none.
            Forbidden: the key, or nobody here, may do this.
        """
        if self._path is None:
            if scope in GUARDED_EVERYWHERE and not self._is_loopback:
                raise Forbidden("no keys are set, and this is no loopback address", "API_KEYS_FILE")
            return ""
        if not presented:
            raise Unauthorized("send a key as Authorization: Bearer or as X-API-Key")
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found: Key | None = None
        for key in self._keys:  # All of them, whichever it is: the time says nothing.
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None:
            raise Unauthorized("this key is not known")
        if scope != "any" and scope not in found.scopes:
            raise Forbidden(f"the key {found.name} has not the scope {scope}")
        return found.name

    def _set_limits(self) -> None:
        self.limits.set({key.name: key.rates for key in self._keys})

    def refresh(self) -> None:
        """Read the file again if it has changed; one that is wrong changes nothing."""
        if self._path is None or (modified := self._modified()) == self._changed:
            return
        self._changed = modified
        try:
            self._keys = read_keys(self._path)
        except ValueError as error:
            logger.error("the keys stay as they were: %s", error)
        else:
            self._set_limits()
            self.generation += 1
            logger.info("%d keys were read", len(self._keys))

    def _modified(self) -> tuple[int, int]:
        if self._path is None:
            return 0, 0
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino
