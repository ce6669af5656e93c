"""Forwarded headers: believed from the proxies of the setting, and from nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.settings import Settings
from service.server.app import create_app
from service.server.uvicorn_server import Server
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run

HEADERS = [(b"x-forwarded-for", b"1.2.3.4, 10.9.0.7"), (b"x-forwarded-proto", b"https")]


@pytest.mark.parametrize(
    ("proxies", "peer", "client", "scheme"),
    [
        ("none", "10.9.0.1", "10.9.0.1", "http"),
        ("10.9.0.0/16", "10.9.0.1", "1.2.3.4", "https"),
        ("10.9.0.0/16", "10.8.0.1", "10.8.0.1", "http"),
        ("10.9.0.1", "10.9.0.1", "10.9.0.7", "https"),
    ],
)
def test_only_named_proxies_are_believed(monkeypatch, proxies, peer, client, scheme):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own variable is not read.
    seen: list[dict[str, Any]] = []

    async def scenario():
        app = create_app(Settings(preload="none", trusted_proxies=proxies), FakeEngine())
        server = Server(app.asgi, app.service.settings, app)
        server.config.load()

        async def note(scope, receive, send):
            seen.append(scope)

        monkeypatch.setattr(type(app.asgi), "__call__", lambda _, *call: note(*call))
        scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": HEADERS}
        await server.config.loaded_app(scope, None, None)

    run(scenario)
    assert (seen[0]["client"][0], seen[0]["scheme"]) == (client, scheme)
