"""Query options that a call does not have are refused by their names."""

from __future__ import annotations

import pytest

from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

ENGINE = CpuEngine()
CALLS = [
    ("POST", "/v1/encode?max_length=3", "/max_length"),
    ("POST", "/v1/encode/batch?dtype=uint16", "/dtype"),
    ("POST", "/v1/decode?skip_special_tokens=true", "/skip_special_tokens"),
    ("POST", "/v1/windows?a%2Fb=", "/a/b"),
    ("GET", "/v1/vocabularies?limit=1", "/limit"),
    ("GET", "/v1/vocabularies/gpt2?fromat=tiktoken", "/fromat"),
    ("PUT", "/v1/vocabularies/new?replaces=true", "/replaces"),
    ("PUT", "/v1/vocabularies/new?replace=true&format=auto&replace=false", "/replace"),
    ("POST", "/v1/vocabularies/gpt2/load?pinned=1", "/pinned"),
    ("POST", "/v1/training-jobs?size=1", "/size"),
]


@pytest.mark.parametrize(("method", "url", "where"), CALLS)
def test_an_option_that_a_call_does_not_have_is_refused(method, url, where):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.request(method, url, json={} if method != "GET" else None)
            assert (answer.status_code, answer.json()["where"]) == (422, where), answer.text

    run(scenario)


def test_options_that_a_call_has_are_taken():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            (document,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
            url = "/v1/vocabularies/new?format=tokenizer.json&replace=true"
            assert (await client.put(url, content=document)).status_code == 201
            answer = await client.get("/v1/vocabularies/new?format=tokenizer.json")
            assert answer.content == document

    run(scenario)


def test_windows_are_bounded_by_their_ids_and_not_by_the_sequences_characters():
    async def scenario():
        async with serving(ENGINE, max_window_ids=100) as (client, _):
            asked = {"vocabulary": "dnabert2", "sequence": "ACGT" * 50, "window": 10, "stride": 10}
            answer = await client.post("/v1/windows", json=asked)
            assert answer.status_code == 200, answer.text
            assert answer.json()["num_tokens"] < 100
            asked |= {"vocabulary": "evo_bytes", "sequence": "é" * 60}  # 120 ids.
            answer = await client.post("/v1/windows", json=asked)
            assert (answer.status_code, answer.json()["where"]) == (413, "/window")
            assert "the answer would have 120 ids" in answer.json()["detail"]

    run(scenario)
