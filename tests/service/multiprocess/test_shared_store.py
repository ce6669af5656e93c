"""Two services that share a store: one with two front ends follows what the other is sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.fake_engine import byte_vocabulary
from tests.support.server_process import server_process
from vocabularies.model import canonical

PERIOD_S = 0.1
PATIENCE_S = 60.0
TEXT = "Hello"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the other service does not follow"
        time.sleep(PERIOD_S)


@pytest.mark.slow
def test_uploads_replacements_aliases_and_deletions_are_followed(tmp_path: Path) -> None:
    settings = {
        "WARPTOK_ENGINE": "cpu",
        "WARPTOK_PRELOAD": "none",
        "WARPTOK_GRPC": "false",
        "WARPTOK_STORE_DIR": str(tmp_path / "store"),
        "WARPTOK_STORE_POLL_S": str(PERIOD_S),
    }
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    first, second = byte_vocabulary(), byte_vocabulary(300)
    with (
        server_process(folders[0], settings) as one,
        server_process(folders[1], {**settings, "WARPTOK_FRONTENDS": "2"}) as other,
        httpx.Client(base_url=one.url, timeout=PATIENCE_S) as ours,
    ):

        def digests(name: str) -> set[str | None]:
            """Encode over connections of their own, which reach both front ends."""
            found = set()
            for _ in range(8):
                body = {"vocabulary": name, "text": TEXT}
                answer = httpx.post(f"{other.url}/v1/encode", json=body, timeout=PATIENCE_S)
                assert answer.status_code in (200, 404), answer.text
                found.add(answer.json().get("digest"))
            return found

        def put(vocabulary, **query) -> None:
            path = "/v1/vocabularies/team/mine"
            answer = ours.put(path, params=query, content=canonical.to_bytes(vocabulary))
            assert answer.status_code in (200, 201), answer.text

        put(first)
        wait_until(lambda: digests("team/mine") == {first.digest})
        put(second, replace="true")
        wait_until(lambda: digests("team/mine") == {second.digest})
        ours.put("/v1/aliases/other", json={"vocabulary": "team/mine"}).raise_for_status()
        wait_until(lambda: digests("other") == {second.digest})
        ours.delete("/v1/vocabularies/team/mine").raise_for_status()
        wait_until(lambda: digests("team/mine") == digests("other") == {None})
