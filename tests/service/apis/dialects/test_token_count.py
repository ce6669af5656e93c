"""/tokenize/count says how many ids /tokenize answers for the same body."""

from __future__ import annotations

from service.engines.cpu.engine import CpuEngine
from tests.service.apis.dialects.calls import CHAT, post, upload
from tests.support.app_client import serving
from tests.support.waiting import run

DNA = "ACGTTGCATTAGGC"
SPECIAL = "a <|endoftext|>"
BODIES = [
    {"model": "gpt2", "prompt": "Hello, world"},
    {"model": "gpt2", "prompt": ["Hello", "", SPECIAL]},
    {"model": "dnabert2", "prompt": DNA},
    {"model": "dnabert2", "prompt": DNA, "add_special_tokens": False},
    {"model": "chat", "messages": CHAT},
    {"model": "chat", "messages": CHAT, "add_generation_prompt": False},
]


def test_counts_are_those_of_tokenize():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            await upload(client)
            for body in BODIES:
                expected = (await post(client, "/tokenize", **body)).json()
                for path in ("/tokenize/count", "/v1/tokenize/count"):
                    got = await post(client, path, **body)
                    fields = ("count", "max_model_len")
                    assert got.json() == {name: expected[name] for name in fields}
            for body in (
                {"content": SPECIAL},
                {"content": SPECIAL, "parse_special": False},
                {"model": "dnabert2", "content": DNA, "add_special": True},
            ):
                tokens = (await post(client, "/tokenize", **body)).json()["tokens"]
                got = await post(client, "/tokenize/count", **body)
                assert got.json()["count"] == len(tokens)
            body = {"model": "dnabert2", "inputs": [DNA, "A"]}
            rows = (await post(client, "/tokenize", **body)).json()
            got = await post(client, "/tokenize/count", **body)
            assert got.json()["count"] == [len(row) for row in rows]
            got = await post(client, "/extras/tokenize/count", model="dnabert2", input=DNA)
            assert got.json()["count"] == len(rows[0])

    run(scenario)


def test_refusals_have_the_shape_of_the_system():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            for body, status in (({}, 400), ({"prompt": 1}, 400), ({"content": []}, 400)):
                got = await post(client, "/tokenize/count", **body)
                assert got.status_code == status
                assert got.json()["error"]["code"] == status
            got = await post(client, "/tokenize/count", inputs=1)
            assert got.json()["error_type"] == "validation"
            got = await post(client, "/tokenize/count", prompt="a", model="none")
            assert got.status_code == 404

    run(scenario)
