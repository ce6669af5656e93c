"""Addresses of clients: behind proxies, and as logs and spans have them."""

from __future__ import annotations

import pytest

from service.core.settings import Settings
from service.security.addresses import TrustedProxies, format_address, strip_port


@pytest.mark.parametrize(
    ("address", "truncated", "whole"),
    [
        ("203.0.113.77", "203.0.113.0/24", "203.0.113.77"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1::/48", "2001:db8:1:2:3:4:5:6"),
        ("::ffff:203.0.113.77", "203.0.113.0/24", "203.0.113.77"),
        ("fe80::1%eth0", "fe80::/48", "fe80::1"),
        ("", "", ""),
        ("unknown, a text of a client's", "", ""),
    ],
)
def test_an_address_is_truncated_whole_or_left_out(address, truncated, whole):
    assert format_address(address, "truncated") == truncated
    assert format_address(address, "whole") == whole
    assert format_address(address, "none") == ""


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("198.51.100.1", ["203.0.113.7"], "198.51.100.1"),  # No trusted proxy.
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.7:99", "10.0.0.9"], "203.0.113.7"),
        ("10.0.0.1", ["[2001:db8::7]:99"], "2001:db8::7"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(peer, forwarded, client):
    proxies = TrustedProxies(Settings(trusted_proxies="10.0.0.0/8"))
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    assert proxies.find_client(peer, [(b"host", b"x"), *headers]) == client


def test_a_port_is_stripped_of_an_address():
    assert strip_port("[::1]:80") == strip_port("::1") == "::1"
    assert strip_port("192.0.2.1:80") == strip_port("192.0.2.1") == "192.0.2.1"
