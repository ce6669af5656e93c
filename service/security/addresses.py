"""Sets of IP addresses, and the group of addresses that one client may have."""

from __future__ import annotations

import ipaddress

from service.core.settings import PREFIX, Settings

IPV6_BITS = 64  # One client usually has all addresses with the same first bits.


class TrustedProxies:
    """The addresses of the setting `trusted_proxies`.

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


def split_names(setting: str) -> list[str]:
    """Split a setting of names with commas; "none" has none."""
    names = [name.strip() for name in setting.split(",")]
    return [name for name in names if name and name != "none"]


def group_address(host: str) -> str:
    """Return the address, or of IPv6 the network, for which connections are counted together."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network(f"{host.partition('%')[0]}/{IPV6_BITS}", strict=False))
    except ValueError:
        return host
