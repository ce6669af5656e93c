"""Creates named API keys with scopes and rates, and manages the JSON file that lists them.

The file contains the SHA-256 of each key, never the key itself.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.core.call import Scope
from service.runtime.atomic_files import Store
from service.security.rate_limits import UNLIMITED, Rates

SCOPES: tuple[Scope, ...] = ("encode", "decode", "manage", "train")
RATES = ("requests_per_s", "bytes_per_s")
KEY_BYTES = 32
PREFIX = "wt-"


@dataclass(frozen=True, slots=True)
class Key:
    """The key of one client.

    Attributes:
        name: the name of the key in logs and metrics.
        digest: the SHA-256 of the key.
        scopes: the scopes that the key grants.
        rates: the limits on requests and bytes per second.
    """

    name: str
    digest: bytes
    scopes: frozenset[Scope]
    rates: Rates = UNLIMITED


def new_key(
    name: str, scopes: tuple[Scope, ...], rates: Rates = UNLIMITED
) -> tuple[str, dict[str, Any]]:
    """Create a secret key; return it and its entry for the file of keys."""
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    digest = hashlib.sha256(key.encode()).hexdigest()
    limited = {rate: value for rate in RATES if (value := getattr(rates, rate)) is not None}
    return key, {"name": name, "sha256": digest, "scopes": list(scopes), **limited}


def add_key(path: Path, name: str, scopes: tuple[Scope, ...], rates: Rates = UNLIMITED) -> str:
    """Add a new key to a file of keys, which is created if needed; return the secret key.

    Raises:
        ValueError: the file is damaged, or contains a key of this name.
    """
    entries: list[dict[str, Any]] = []
    if path.exists():
        if any(key.name == name for key in read_keys(path)):
            raise ValueError(f"{path}: a key named {name} exists already")
        entries = json.loads(path.read_text(encoding="utf-8"))
    secret, entry = new_key(name, scopes, rates)
    content = json.dumps([*entries, entry], indent=1).encode()
    Store(path.parent, is_private=True).write(path.name, content)
    return secret


def read_keys(path: Path) -> list[Key]:
    """Read a file of keys: a JSON list of {"name", "sha256", "scopes"} and optional rates.

    Raises:
        ValueError: the file cannot be read or is damaged; the message contains the place.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not JSON: {error}"
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
        raise ValueError(
            f"{where}: must have name, sha256 and scopes, may have {may}, and no other fields"
        )
    name, digest, scopes = entry["name"], entry["sha256"], entry["scopes"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}: the name must be a text")
    try:
        raw = bytes.fromhex(digest) if isinstance(digest, str) else b""
    except ValueError:
        raw = b""
    if len(raw) != hashlib.sha256().digest_size:
        raise ValueError(f"{where}: sha256 must be 64 hexadecimal digits")
    if not isinstance(scopes, list) or not scopes or any(each not in SCOPES for each in scopes):
        raise ValueError(f"{where}: scopes must be some of {', '.join(SCOPES)}")
    for rate in entry.keys() & set(RATES):
        value = entry[rate]
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise ValueError(f"{where}: {rate} must be a positive number")
    rates = Rates(entry.get("requests_per_s"), entry.get("bytes_per_s"))
    return Key(name, raw, frozenset(scopes), rates)
