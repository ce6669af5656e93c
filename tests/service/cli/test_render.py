"""The command `render`, in place of `vllm launch render`, with one model's folder.

The bodies are those that llm-d's router and Dynamo send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.cli.parser import main, make_parser
from service.cli.serve import RENDER_DEFAULTS, RENDER_OPTIONS, _read
from service.core.settings import Settings, with_defaults
from service.engines.cpu.engine import CpuEngine
from service.registry.model_folder import use_model
from tests.support.app_client import PATIENT, serving
from tests.support.data_files import data_bytes
from tests.support.fake_engine import FakeEngine
from tests.support.inputs.model_folder import CHAT, CHAT_TEXT, GENERATION, write_model_folder
from tests.support.linked_processes import client_of, linked_service
from tests.support.server_process import Server, server_process
from tests.support.waiting import run, until
from vocabularies.batch.batch import EncodeOptions
from vocabularies.formats import read_vocabulary
from vocabularies.reference import tokenizer

RENDER = "/v1/chat/completions/render"
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBg"
# What llm-d's router sends until it is answered, and then once with an image.
WARM_UP = [{"role": "user", "content": [{"type": "text", "text": "warmup"}]}]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}]
FIELDS = {
    "request_id",
    "model",
    "token_ids",
    "token_offsets",
    "features",
    "content_parts",
    "sampling_params",
    "reasoning_ended",
    "reasoning_parser_kwargs",
    "return_token_ids",
    "output_mode",
    "stream",
    "stream_options",
    "cache_salt",
    "priority",
    "kv_transfer_params",
    "ec_transfer_params",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_folder(tmp_path_factory.mktemp("models") / "base")


def render_settings(folder: Path, **others: object) -> dict[str, object]:
    """Return the settings of the command, for an application in this process."""
    made = with_defaults(Settings(model_dir=folder, **(PATIENT | others)), RENDER_DEFAULTS)
    return use_model(made).model_dump(exclude={"engine"})


def test_the_profile_holds_unless_the_environment_or_an_option_says_otherwise(monkeypatch):
    def read(*words: str) -> Settings:
        arguments = make_parser().parse_args(["render", "/m/base", *words])
        return with_defaults(_read(arguments, RENDER_OPTIONS), RENDER_DEFAULTS)

    made = read()
    assert (made.host, made.port, made.request_timeout_ms) == ("0.0.0.0", 8000, 1000)
    assert (made.grpc, made.management, made.engine) == (False, False, "cpu")
    assert made.model_dir == Path("/m/base")
    monkeypatch.setenv("WARPTOK_REQUEST_TIMEOUT_MS", "700")
    monkeypatch.setenv("WARPTOK_ENGINE", "auto")
    # As KServe and vLLM's documents write it.
    words = "--port=8100 --served-model-name a/b c --max-model-len 4096 --engine gpu".split()
    words += ["--enable-ssl-refresh", "--ssl-certfile", "/tls/c", "--ssl-keyfile", "/tls/k"]
    made = read(*words)
    assert (made.port, made.request_timeout_ms, made.engine) == (8100, 700, "gpu")
    assert (made.model_names, made.max_model_len) == ("a/b,c", 4096)
    assert (made.tls_certificate, made.tls_key) == (Path("/tls/c"), Path("/tls/k"))


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["{}/none"], "WARPTOK_MODEL_DIR: "),
        (["{}"], "has none of tokenizer.json"),
        (["{}", "--port", "99999"], "--port: "),
        (
            ["{}", "--served-model-name", "a,b"],
            "--served-model-name: a name must not contain a comma",
        ),
        (["{}", "--ssl-keyfile", "k"], "--ssl-keyfile: "),
    ],
)
def test_what_is_wrong_stops_the_start_and_is_named(words, fault, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("service.cli.serve.configure", lambda settings: None)
    monkeypatch.setattr("service.server.uvicorn_server.end_normally_on_signals", lambda: None)
    monkeypatch.setattr("service.server.uvicorn_server.bind_sockets", lambda settings: [])
    assert main(["render", *(word.format(tmp_path) for word in words)]) == 2
    assert fault in capsys.readouterr().err


def test_the_answer_has_vllms_fields_and_is_called_by_every_name(folder):
    async def scenario():
        settings = render_settings(folder, model_names="served,org/served")
        async with serving(CpuEngine(), **settings) as (client, service):
            await until(lambda: service.preloaded)
            listed = (await client.get("/v1/models")).json()["data"]
            models = [(each["id"], each["root"], each["max_model_len"]) for each in listed]
            assert models == [("served", "served", 1024), ("org/served", "served", 1024)]
            assert (await client.get("/v1/models/org/served")).json()["id"] == "org/served"
            expected = (await client.post("/tokenize", json={"prompt": CHAT_TEXT})).json()["tokens"]
            for name in ("served", "org/served", "openai/gpt-2", "base", str(folder), None):
                answer = await client.post(RENDER, json={"model": name, "messages": CHAT})
                assert answer.status_code == 200, answer.text
                document = answer.json()
                assert document["token_ids"] == expected
                assert document["model"] == (name or "served")
                assert document.keys() >= FIELDS
                assert document["features"] is None
            answer = await client.post(RENDER, json={"model": "gpt2", "messages": CHAT})
            assert answer.status_code == 404
            assert answer.json()["error"]["param"] == "/model"
            (one,) = (await client.post("/v1/completions/render", json={"prompt": "Hi"})).json()
            assert one.keys() >= FIELDS
            names = {
                row["name"] for row in (await client.get("/v1/vocabularies")).json().popitem()[1]
            }
            assert names == {"served"}

    run(scenario)


def test_the_warm_up_of_a_router_is_answered(folder):
    async def scenario():
        async with serving(CpuEngine(), **render_settings(folder)) as (client, _):
            body = {"model": "openai/gpt-2", "messages": WARM_UP}
            answer = await client.post(RENDER, json=body)
            assert answer.status_code == 200
            assert len(answer.json()["token_ids"]) > 3
            refused = await client.post(RENDER, json=body | {"messages": IMAGE})
            assert refused.status_code == 400
            assert len(refused.content) < 1024  # As much as a router writes to its log.
            tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
            body |= {"messages": CHAT, "tools": tools, "tool_choice": "auto", "stream": True}
            assert (await client.post(RENDER, json=body)).status_code == 200

    run(scenario)


def test_sampling_parameters_are_the_requests_the_models_and_vllms(folder):
    async def sampled(client, path=RENDER, **fields):
        body = {"messages": CHAT} if path == RENDER else {"prompt": "Hello"}
        answer = await client.post(path, json=body | fields)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        document = document if path == RENDER else document[0]
        return document["sampling_params"], document

    async def scenario():
        async with serving(CpuEngine(), **render_settings(folder)) as (client, _):
            params, document = await sampled(client)
            assert params == {
                "n": 1,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "temperature": GENERATION["temperature"],
                "top_p": 1.0,
                "top_k": GENERATION["top_k"],
                "min_p": 0.0,
                "max_tokens": GENERATION["max_new_tokens"],
                "output_kind": 2,
            }
            num_ids = len(document["token_ids"])
            fields = {"temperature": 0, "top_p": 0.3, "seed": 7, "stop": "x", "n": 2}
            fields |= {"max_tokens": 5000, "logprobs": True, "top_logprobs": 4, "stream": True}
            fields |= {"stop_token_ids": [1], "logit_bias": {"3": -1}, "bad_words": ["y"]}
            fields |= {"vllm_xargs": {"a": 1}, "kv_transfer_params": {"b": 2}}
            fields |= {"min_tokens": 2, "ignore_eos": True, "skip_special_tokens": False}
            fields |= {"stream_options": {"include_usage": True}, "priority": 3}
            params, document = await sampled(client, **fields)
            for name in ("temperature", "seed", "n", "stop_token_ids", "logit_bias", "bad_words"):
                assert params[name] == fields[name], name
            for name in ("min_tokens", "ignore_eos", "skip_special_tokens"):
                assert params[name] == fields[name], name
            # A choice of the likeliest ids has no nucleus, and the model's length is the limit.
            assert (params["top_p"], params["top_k"]) == (1.0, 0)
            assert params["max_tokens"] == 1024 - num_ids
            assert (params["stop"], params["logprobs"]) == (["x"], 4)
            assert params["extra_args"] == {"a": 1, "kv_transfer_params": {"b": 2}}
            assert params["output_kind"] == 1
            assert document["stream"] is True
            assert (document["stream_options"], document["priority"]) == (
                {"include_usage": True},
                3,
            )
            params, _ = await sampled(client, max_completion_tokens=6, max_tokens=7)
            assert params["max_tokens"] == 6
            params, _ = await sampled(client, "/v1/completions/render", logprobs=2, echo=True)
            assert (params["max_tokens"], params["logprobs"], params["prompt_logprobs"]) == (
                16,
                2,
                2,
            )
            schema = {"type": "object"}
            for wanted, structure in (
                ({"type": "text"}, None),
                ({"type": "json_object"}, {"json_object": True}),
                ({"type": "json_schema", "json_schema": {"schema": schema}}, {"json": schema}),
            ):
                params, _ = await sampled(client, response_format=wanted)
                assert params.get("structured_outputs") == structure
            for wrong, where in (
                ({"response_format": {"type": "xml"}}, "/response_format/type"),
                ({"response_format": {"type": "json_schema"}}, "/response_format"),
                ({"temperature": "hot"}, "/temperature"),
                ({"n": 0}, "/n"),
                ({"temperature": -1}, "/temperature"),
                ({"top_p": 0}, "/top_p"),
                ({"seed": 2**63}, "/seed"),
                ({"logprobs": "many"}, "/logprobs"),
                ({"max_tokens": 1e30}, "/max_tokens"),
                ({"stop": 5}, "/stop"),
            ):
                answer = await client.post(RENDER, json={"messages": CHAT, **wrong})
                assert answer.status_code == 400
                assert answer.json()["error"]["param"] == where

    run(scenario)


def test_a_request_that_waits_too_long_is_refused(folder):
    async def scenario():
        engine = FakeEngine()
        settings = render_settings(
            folder,
            inline_batch_bytes=0,
            chat_cache_bytes=0,  # All of these chats are the same.
            request_timeout_ms=2000,  # The process of the templates starts within it.
        )
        async with serving(engine, **settings) as (client, service):
            await until(lambda: service.preloaded)
            while (await client.post(RENDER, json={"messages": CHAT})).status_code != 200:
                pass  # On the slowest machines it does not.
            engine.gate.clear()
            asked = [client.post(RENDER, json={"messages": CHAT}) for _ in range(20)]
            answers = [asyncio.ensure_future(each) for each in asked]
            await until(lambda: sum(each.done() for each in answers) >= len(answers) - 4)
            engine.gate.set()
            statuses = {answer.status_code for answer in await asyncio.gather(*answers)}
            assert 504 in statuses and statuses <= {200, 504}

    run(scenario)


def test_nothing_can_be_changed(folder):
    async def scenario():
        async with serving(CpuEngine(), **render_settings(folder)) as (client, _):
            for method, path in (
                ("PUT", "/v1/vocabularies/x"),
                ("DELETE", "/v1/vocabularies/base"),
                ("POST", "/v1/vocabularies/base/unload"),
                ("PUT", "/v1/aliases/x"),
                ("POST", "/v1/training-jobs"),
                ("POST", "/v2/repository/models/base/unload"),
                ("POST", "/v2/systemsharedmemory/unregister"),
            ):
                answer = await client.request(method, path, json={})
                assert answer.status_code == 403, path
                assert "(setting management)" in answer.text

    run(scenario)


@pytest.mark.slow
def test_front_ends_render_for_a_folder_too(folder, tmp_path):
    settings = {"model_dir": folder, "preload": "openai/gpt-2", "management": False}
    settings["default_vocabulary"] = "openai/gpt-2"

    async def scenario():
        async with linked_service(tmp_path, FakeEngine(), **settings) as (_, (front, _)):
            async with client_of(front) as client:
                answer = await client.post(RENDER, json={"model": "base", "messages": CHAT})
                assert answer.status_code == 200, answer.text
                assert answer.json()["token_ids"] == list(CHAT_TEXT.encode())
                assert answer.json()["sampling_params"]["temperature"] == 0.6
                answer = await client.put("/v1/aliases/x", json={"vocabulary": "base"})
                assert answer.status_code == 403

    run(scenario)


@pytest.mark.slow
def test_a_real_models_folder_gives_the_references_ids(tmp_path):
    content = data_bytes("vocab/qwen/qwen3_tokenizer.json.xz")
    folder = write_model_folder(tmp_path / "base", special_tokens_map=None)
    (folder / "tokenizer.json").write_bytes(content)
    text = "<user>Größe, 北京! <|im_end|>\n<assistant>"
    vocabulary = read_vocabulary({"tokenizer.json": content})
    expected = tokenizer.encode(vocabulary, text, EncodeOptions(add_special_tokens=False)).ids

    async def scenario():
        async with serving(CpuEngine(), **render_settings(folder)) as (client, _):
            chat = [{"role": "user", "content": "Größe, 北京! <|im_end|>"}]
            answer = await client.post(RENDER, json={"messages": chat})
            assert answer.json()["token_ids"] == expected

    run(scenario)


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log")
    command = ("render", str(folder), "--served-model-name", "org/served")
    with server_process(log, {"WARPTOK_STORE_DIR": "/proc/none"}, command=command) as started:
        yield started


@pytest.mark.slow
def test_a_process_renders_derenders_and_counts(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.get("/health").status_code == 200
        assert client.post("/ping").status_code == 200
        rendered = client.post(RENDER, json={"model": "org/served", "messages": WARM_UP})
        assert rendered.status_code == 200
        generated = {"request_id": "r", "choices": [{"index": 0, "token_ids": [15496]}]}
        body = {"model": "base", "generate_response": generated}
        answer = client.post("/v1/chat/completions/derender", json=body).json()
        assert answer["choices"][0]["message"]["content"] == "Hello"
        metrics = client.get("/metrics").text
        assert f'http_request_duration_seconds_count{{handler="{RENDER}"}} 1.0' in metrics
        assert "process_cpu_seconds_total " in metrics
        assert 'name="org/served"' in metrics
        assert client.put("/v1/vocabularies/x", content=b"{}").status_code == 403
        listed = client.get("/v1/models").json()["data"]
        assert [each["id"] for each in listed] == ["org/served"]
    assert "gRPC" not in server.log.read_text()
