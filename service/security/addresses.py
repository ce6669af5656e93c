"""Reads, groups and truncates the IP addresses of clients."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from service.core.settings import PREFIX, Settings

IPV6_BITS = 64  # One client usually owns all addresses with the same first bits.
LOGGED_BITS = {4: 24, 6: 48}  # Truncated addresses: the network of a site, which many share.
FORWARDED_FOR = b"x-forwarded-for"


class TrustedProxies:
    """The proxies of the setting `trusted_proxies`, whose X-Forwarded-For is believed.

    Args:
        settings: the settings of the service.

    Raises:
        ValueError: a part of the setting is neither an address nor a network.
    """

    def __init__(self, settings: Settings) -> None:
        parts = split_names(settings.trusted_proxies)
        try:
            self._networks = [ipaddress.ip_network(part, strict=False) for part in parts]
        except ValueError as error:
            raise ValueError(f"{PREFIX}TRUSTED_PROXIES: {error}") from error
        self.names = parts

    def __contains__(self, host: str) -> bool:
        if not self._networks:
            return False
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def find_client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the IP address of the client that sent a request.

        Args:
            peer: the address at the other end of the connection.
            headers: the headers of the request. If the peer is a trusted proxy, the client is the
                last address in X-Forwarded-For that is not a trusted proxy.
        """
        if peer not in self:
            return peer
        forwarded = b",".join(value for name, value in headers if name == FORWARDED_FOR)
        hosts = [strip_port(host.strip()) for host in forwarded.decode("latin-1").split(",")]
        return next((host for host in reversed(hosts) if host not in self), hosts[0]) or peer


def strip_port(host: str) -> str:
    """Remove the port of 192.0.2.1:80, or the brackets and the port of [2001:db8::1]:80."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


@lru_cache(1024)
def format_address(host: str, rule: str) -> str:
    """Format an address for logs and spans; return "" if it is to be omitted or is invalid.

    Args:
        host: the address.
        rule: the value of the setting `client_addresses`.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if rule == "truncated":
        return str(ipaddress.ip_network((address, LOGGED_BITS[address.version]), strict=False))
    return str(address) if rule == "whole" else ""


def split_names(setting: str) -> list[str]:
    """Split a setting at its commas into names; "none" becomes an empty list."""
    names = [name.strip() for name in setting.split(",")]
    return [name for name in names if name and name != "none"]


def group_address(host: str) -> str:
    """Return the key that connections are counted by: an IPv4 address or an IPv6 network."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network(f"{host.partition('%')[0]}/{IPV6_BITS}", strict=False))
    except ValueError:
        return host
