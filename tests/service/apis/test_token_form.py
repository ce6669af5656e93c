"""Tokens as strings have one form: readable text, or on request that of a tokenizer.json."""

from __future__ import annotations

import json

import pytest
from grpc.aio import AioRpcError

from service.cli.parser import main
from service.engines.cpu.engine import CpuEngine
from service.protos import warptok_pb2 as pb
from tests.service.apis.grpc.test_grpc import serving as grpc_serving
from tests.support.app_client import serving
from tests.support.waiting import run

ENGINE = CpuEngine()
TEXT = "Hello the 北🙂<|endoftext|>"
TOKENS = {
    "text": [
        *("Hello", " the", " <0xE5>", "<0x8C>", "<0x97>"),
        *("<0xF0><0x9F>", "<0x99><0x82>", "<|endoftext|>"),
    ],
    "file": ["Hello", "Ġthe", "Ġå", "Į", "Ĺ", "ðŁ", "ĻĤ", "<|endoftext|>"],
}


@pytest.mark.parametrize("form", TOKENS)
def test_all_calls_over_http_have_the_form(form: str):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            options = {"vocabulary": "gpt2", "return_tokens": True}
            if form != "text":  # The default.
                options["token_form"] = form
            answer = await client.post("/v1/encode", json=options | {"text": TEXT})
            assert answer.json()["tokens"] == TOKENS[form]
            texts = {"texts": [TEXT, "x", TEXT], "return_tokens": [True, False, True]}
            answer = await client.post("/v1/encode/batch", json=options | texts)
            assert answer.json()["tokens"] == [TOKENS[form], None, TOKENS[form]]
            answer = await client.post(
                "/v1/encode",
                content=TEXT.encode(),
                headers={"content-type": "text/plain"},
                params=options | {"return_tokens": "true"},
            )
            assert answer.json()["tokens"] == TOKENS[form]
            wrong = await client.post("/v1/encode", json=options | {"text": "", "token_form": "x"})
            assert (wrong.status_code, wrong.json()["where"]) == (422, "/token_form")

    run(scenario)


def test_vllms_clients_are_given_the_strings_of_the_file():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = {"model": "gpt2", "prompt": TEXT, "return_token_strs": True}
            answer = await client.post("/tokenize", json=body)
            assert answer.json()["token_strs"] == TOKENS["file"]

    run(scenario)


@pytest.mark.parametrize("form", TOKENS)
def test_grpc_has_the_form(form: str):
    async def scenario():
        async with grpc_serving() as (client, _):
            options = pb.Options(return_tokens=True, token_form=form)
            request = pb.EncodeRequest(vocabulary="gpt2", text=TEXT.encode(), options=options)
            assert list((await client.Encode(request)).tokens) == TOKENS[form]
            options.token_form = "bytes"
            request = pb.EncodeRequest(vocabulary="gpt2", text=b"", options=options)
            with pytest.raises(AioRpcError, match="text or file"):
                await client.Encode(request)

    run(scenario)


@pytest.mark.parametrize("form", TOKENS)
def test_the_command_line_has_the_form(form: str, capfdbinary):
    command = ["encode", "-v", "gpt2", "--json", "--tokens", "--text", TEXT]
    assert main([*command, "--token-form", form]) == 0
    assert json.loads(capfdbinary.readouterr().out)["tokens"] == TOKENS[form]
