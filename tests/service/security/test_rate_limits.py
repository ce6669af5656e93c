"""Token buckets by a clock of the test's own; keys with rates through HTTP, short way and long."""

from __future__ import annotations

import json

import httpx
import pytest

from service.core.errors import RateLimited
from service.engines.cpu.engine import CpuEngine
from service.security import api_keys
from service.security.rate_limits import Limits, Rates
from tests.support.app_client import serving
from tests.support.server_process import server_process
from tests.support.waiting import GIVEN_UP_S, run

BODY = {"vocabulary": "gpt2", "text": "Hello"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def limits(clock: Clock, **rates: float) -> Limits:
    made = Limits(clock)
    made.set({"a": Rates(**rates)})
    return made


def retry_after(error: RateLimited) -> int:
    return int(dict(error.headers)[b"retry-after"])


def num_admitted(made: Limits, client: str = "a") -> int:
    for number in range(1000):
        try:
            made.admit(client)
        except RateLimited:
            return number
    return 1000


def test_requests_a_second_hold_over_any_time_with_a_burst_of_one_second(clock):
    made = limits(clock, requests_per_s=10)
    assert num_admitted(made) == 10
    clock.now = 0.55
    assert num_admitted(made) == 5
    clock.now = 1000.0
    assert num_admitted(made) == 10
    assert num_admitted(made, "b") == 1000


def test_a_slow_rate_says_when_to_come_again(clock):
    made = limits(clock, requests_per_s=0.1)
    made.admit("a")
    with pytest.raises(RateLimited) as caught:
        made.admit("a")
    assert retry_after(caught.value) == 10
    clock.now = 10.0
    made.admit("a")


def test_a_request_larger_than_a_second_passes_and_its_debt_is_paid_first(clock):
    made = limits(clock, bytes_per_s=1000)
    made.charge("a", 5000)
    with pytest.raises(RateLimited) as caught:
        made.admit("a")
    assert "bytes_per_s is 1000" in caught.value.message
    assert retry_after(caught.value) == 5
    clock.now = 4.0
    with pytest.raises(RateLimited):
        made.check_bytes("a")
    clock.now = 4.1
    made.admit("a")


def test_reading_the_file_again_fills_no_bucket_whose_rate_stays(clock):
    made = limits(clock, requests_per_s=2)
    assert num_admitted(made) == 2
    made.set({"a": Rates(requests_per_s=2)})
    assert num_admitted(made) == 0
    made.set({"a": Rates(requests_per_s=3)})
    assert num_admitted(made) == 3


def test_a_key_with_rates_is_written_and_read(tmp_path):
    path = tmp_path / "keys.json"
    api_keys.add_key(path, "slow", ("encode",), Rates(2, 1000))
    api_keys.add_key(path, "free", ("encode",))
    assert [key.rates for key in api_keys.read_keys(path)] == [Rates(2, 1000), Rates()]


@pytest.mark.parametrize("value", [0, -1, True, "5", None, float("inf")])
def test_a_rate_that_is_no_positive_number_is_refused(tmp_path, value):
    _, entry = api_keys.new_key("x", ("encode",))
    path = tmp_path / "keys.json"
    path.write_text(json.dumps([entry | {"bytes_per_s": value}]))
    with pytest.raises(ValueError, match="key 0: bytes_per_s must be a positive number"):
        api_keys.read_keys(path)


def test_too_many_requests_are_refused_with_429_on_every_route(tmp_path):
    path = tmp_path / "keys.json"
    slow = api_keys.add_key(path, "slow", ("encode",), Rates(requests_per_s=0.001))
    free = api_keys.add_key(path, "free", ("encode",))

    async def scenario():
        async with serving(CpuEngine(), api_keys_file=path) as (client, service):
            headers = {"x-api-key": slow}
            first = await client.post("/v1/encode", json=BODY, headers=headers)
            assert first.status_code == 200
            for route in ("/v1/encode", "/tokenize", "/v1/windows", "/v2/models/gpt2/infer"):
                answer = await client.post(route, json=BODY, headers=headers)
                assert answer.status_code == 429, route
                assert int(answer.headers["retry-after"]) > 900
                others = await client.post("/v1/encode", json=BODY, headers={"x-api-key": free})
                assert others.status_code == 200
            text, _ = service.metrics.exposition()
            assert b'warptok_requests_rejected_total{reason="rate_limited"} 4.0' in text

    run(scenario)


def test_bytes_a_second_hold_on_the_shortest_way_and_are_said_the_same(tmp_path):
    path = tmp_path / "keys.json"
    secret = api_keys.add_key(path, "slow", ("encode",), Rates(bytes_per_s=10))
    settings = {"WARPTOK_PRELOAD": "evo_bytes", "WARPTOK_API_KEYS_FILE": str(path)}
    body = {"vocabulary": "evo_bytes", "text": "A" * 10_000}
    with server_process(tmp_path, settings) as server:
        headers = {"x-api-key": secret}
        with httpx.Client(base_url=server.url, headers=headers, timeout=GIVEN_UP_S) as client:
            assert client.post("/v1/encode", json=body).status_code == 200
            answers = [client.post("/v1/encode", json=body) for _ in range(2)]
            answers.append(
                client.post(
                    "/v1/encode",
                    content=json.dumps(body).encode() + b" " * 70_000,
                    headers={"content-type": "application/json"},
                )
            )
    for answer in answers:
        assert answer.status_code == 429
        assert answer.json()["code"] == "rate_limited"
        assert int(answer.headers["retry-after"]) == pytest.approx(1000, abs=30)
