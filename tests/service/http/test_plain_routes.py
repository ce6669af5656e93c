"""Routes that are called without FastAPI answer as they do with it."""

from __future__ import annotations

import pytest

from service.apis.dialects import common
from service.engines.cpu.engine import CpuEngine
from service.http import plain_routes
from tests.service.apis.dialects.calls import CHAT, upload
from tests.support.app_client import serving
from tests.support.waiting import run

RENDER = "/v1/chat/completions/render"
CALLS = (
    ("POST", RENDER, {"model": "chat", "messages": CHAT}),
    ("POST", f"{RENDER}/", {"model": "chat", "messages": CHAT}),
    ("POST", RENDER, {"model": "chat", "messages": []}),
    ("POST", RENDER, {"model": "missing", "messages": CHAT}),
    ("POST", RENDER, [1]),
    ("POST", "/v1/completions/render", {"model": "chat", "prompt": "Hello"}),
    ("POST", "/v1/messages/count_tokens", {"model": "chat", "messages": [{"role": 1}]}),
    ("POST", "/v1/responses/input_tokens", {"model": "chat", "input": "Hello"}),
    ("GET", RENDER, None),
    ("PUT", RENDER, None),
)


async def _answer_all(client):
    answers = []
    for method, path, body in CALLS:
        answer = await client.request(method, path, json=body)
        content = answer.json()
        fields = content[0] if isinstance(content, list) else content
        fields.pop("request_id", None)
        headers = {name: answer.headers.get(name) for name in ("content-type", "allow")}
        answers.append((answer.status_code, headers, content))
    metrics = (await client.get("/metrics")).text
    counted = sorted(x for x in metrics.splitlines() if x.startswith("warptok_requests_total"))
    return answers, counted


def test_answers_and_counts_are_those_of_fastapi(monkeypatch):
    async def scenario():
        results = []
        for is_plain in (True, False):
            if not is_plain:
                monkeypatch.setattr(plain_routes.PlainRoutes, "_find", lambda self, scope: None)
            async with serving(CpuEngine()) as (client, _):
                await upload(client)
                results.append(await _answer_all(client))
        assert results[0] == results[1]
        assert {answer[0] for answer in results[0][0]} >= {200, 400, 404, 405}
        assert any(RENDER in line for line in results[0][1])

    run(scenario)


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_bug_is_an_error_in_the_format_of_the_path(monkeypatch, is_plain):
    async def fail(*_, **__):
        raise RuntimeError("secret")

    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            await upload(client)
            answer = await client.post(RENDER, json={"model": "chat", "messages": CHAT})
            assert answer.status_code == 500
            assert answer.json()["error"]["type"] == "InternalServerError"
            assert "secret" not in answer.text

    monkeypatch.setattr(common.DialectRequest, "find_entry", fail)
    if not is_plain:
        monkeypatch.setattr(plain_routes.PlainRoutes, "_find", lambda self, scope: None)
    run(scenario)
