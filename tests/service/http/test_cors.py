"""Web pages of the origins in `cors_origins` may call the service; others may not."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from service.core.settings import Settings
from tests.service.http.connection.test_protocol import answer, listening, request, text_body
from tests.support.app_client import serving
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run

PAGE = "https://page.example"
FRIEND = "https://friend.example"
ALLOW = "access-control-allow-origin"


def ask(method: str, origin: str = PAGE) -> dict[str, str]:
    """Return the fields of a preflight."""
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "content-type,authorization",
    }


def test_without_the_setting_no_page_is_allowed_anything():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            response = await client.options("/v1/encode", headers=ask("POST"))
            assert response.status_code == 405
            assert ALLOW not in response.headers
            response = await client.get("/v1/models", headers={"origin": PAGE})
            assert response.status_code == 200
            assert ALLOW not in response.headers

    run(scenario)


def test_listed_pages_are_allowed_requests_with_json_and_keys():
    async def scenario():
        async with serving(FakeEngine(), cors_origins=f"{PAGE}, {FRIEND}/") as (client, _):
            for path, method in (("/v1/encode", "POST"), ("/v1/models", "GET")):
                for origin in (PAGE, FRIEND):
                    response = await client.options(path, headers=ask(method, origin))
                    fields = response.headers
                    assert (response.status_code, fields[ALLOW]) == (200, origin)
                    assert fields["access-control-allow-headers"] == "content-type,authorization"
                    assert method in fields["access-control-allow-methods"]
            for origin in ("https://evil.example", "http://page.example", "null"):
                response = await client.options("/v1/encode", headers=ask("POST", origin))
                assert response.status_code == 400
                assert ALLOW not in response.headers

    run(scenario)


def test_answers_and_refusals_can_be_read_by_listed_pages_only():
    async def scenario():
        async with serving(FakeEngine(), cors_origins=PAGE) as (client, _):
            for path in ("/v1/encode", "/tokenize", "/v1/none"):
                response = await client.post(path, json={}, headers={"origin": PAGE})
                assert response.status_code in (404, 422, 400)
                assert response.headers[ALLOW] == PAGE
                assert "Origin" in response.headers["vary"]
                assert response.headers["access-control-expose-headers"] == "*"
                response = await client.post(path, json={}, headers={"origin": FRIEND})
                assert ALLOW not in response.headers

    run(scenario)


def test_changes_need_allowed_origins_as_well():
    async def scenario():
        settings = {"cors_origins": "any", "allowed_origins": FRIEND}
        async with serving(FakeEngine(), **settings) as (client, _):
            for path, method in (("/v1/vocabularies/a", "PUT"), ("/v1/training-jobs", "POST")):
                response = await client.options(path, headers=ask(method))
                assert response.status_code == 403
                assert response.json()["code"] == "origin_not_allowed"
                assert ALLOW not in response.headers
                response = await client.options(path, headers=ask(method, FRIEND))
                assert (response.status_code, response.headers[ALLOW]) == (200, "*")
            response = await client.put("/v1/vocabularies/a", headers={"origin": PAGE})
            assert (response.status_code, response.headers[ALLOW]) == (403, "*")

    run(scenario)


def test_over_a_socket_the_host_is_checked_first_and_small_calls_have_the_fields():
    async def scenario():
        async with listening(FakeEngine(), cors_origins=PAGE) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            asked = f"Origin: {PAGE}\r\nAccess-Control-Request-Method: POST\r\n\r\n"
            for host, expected in (("localhost", 200), ("rebound.example", 403)):
                head = f"OPTIONS /v1/encode HTTP/1.1\r\nHost: {host}\r\n"
                writer.write((head + asked).encode())
                status, fields, _ = await answer(reader)
                assert status == expected
                assert (fields.get(ALLOW.encode()) == PAGE.encode()) == (expected == 200)
            for _ in range(3):
                writer.write(request(text_body("a"), "/v1/encode", f"Origin: {PAGE}"))
                status, fields, _ = await answer(reader)
                assert (status, fields[ALLOW.encode()]) == (200, PAGE.encode())
                writer.write(request(text_body("a")))
                status, fields, _ = await answer(reader)
                assert (status, ALLOW.encode() in fields) == (200, False)
            writer.close()

    run(scenario)


@pytest.mark.parametrize("value", ["example.org", "https://a/b", "any,https://a", "*"])
def test_what_is_no_origin_stops_the_start(value):
    with pytest.raises(ValidationError, match="cors_origins"):
        Settings(cors_origins=value)
