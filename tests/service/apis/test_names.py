"""Names with slashes and aliases in the paths and bodies of every API."""

from __future__ import annotations

import gzip
import itertools
from urllib.parse import unquote

import httpx
import pytest

from service.engines.cpu.engine import CpuEngine
from service.security import api_keys
from service.security.scopes import find_path_scope
from tests.service.apis.native.test_vocabularies import OTHER_JSON, TOKENIZER_JSON
from tests.support import waiting
from tests.support.app_client import application_of, serving

NAME = "Qwen/Qwen3-8B"
FORMS = pytest.mark.parametrize("path", [NAME, NAME.replace("/", "%2F"), NAME.replace("/", "%2f")])
ALIAS = b'{"vocabulary": "gpt2"}'
INFER = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["ACGT"]}]}


def run(scenario, **settings) -> None:
    async def within() -> None:
        async with serving(CpuEngine(), **settings) as (client, service):
            await scenario(client, service)

    waiting.run(within)


@FORMS
def test_every_route_of_a_vocabulary_takes_a_name_with_a_slash(path):
    async def scenario(client, _):
        url = f"/v1/vocabularies/{path}"
        made = await client.put(url, content=TOKENIZER_JSON)
        assert (made.status_code, made.json()["name"]) == (201, NAME)
        assert (await client.put(url, content=OTHER_JSON)).status_code == 409
        assert (await client.get(url)).json()["name"] == NAME
        assert (await client.get(url + "/")).json()["name"] == NAME
        for call, state in (("unload", "unloaded"), ("load", "loaded")):
            assert (await client.post(f"{url}/{call}")).json()["state"] == state
        verified = (await client.post(f"{url}/verify", json={"samples": 3})).json()
        assert (verified["vocabulary"], verified["num_different"]) == (NAME, 0)
        got = await client.get(url, params={"format": "tokenizer.json"})
        assert got.status_code == 200
        body = {"vocabulary": NAME, "text": "ACGT"}
        encoded = (await client.post("/v1/encode", json=body)).json()
        assert (encoded["vocabulary"], encoded["ids"]) == (NAME, [6])
        text = await client.post(
            "/v1/encode",
            params={"vocabulary": NAME},
            content=b"ACGT",
            headers={"content-type": "text/plain"},
        )
        assert text.json()["ids"] == [6]
        model = (await client.get(f"/v1/models/{path}")).json()
        assert model["id"] == NAME
        tokens = await client.post("/tokenize", json={"model": NAME, "prompt": "ACGT"})
        assert tokens.json()["tokens"] == [6]
        assert (await client.delete(url)).status_code == 204
        assert (await client.get(url)).status_code == 404

    run(scenario)


@FORMS
@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_every_route_of_a_model_takes_a_name_with_a_slash(path, version):
    async def scenario(client, service):
        await client.put(f"/v1/vocabularies/{NAME}", content=TOKENIZER_JSON)
        url = f"/v2/models/{path}{version}"
        answer = (await client.post(f"{url}/infer", json=INFER)).json()
        assert (answer["model_name"], answer["outputs"][0]["data"]) == (NAME, [6])
        ids = {"inputs": [{"name": "input_ids", "datatype": "INT32", "shape": [1], "data": [6]}]}
        answer = (await client.post(f"/v2/models/{path}.decode{version}/infer", json=ids)).json()
        assert answer["outputs"][0]["data"] == ["ACGT"]
        assert (await client.get(url)).json()["name"] == NAME
        assert (await client.get(f"{url}/ready")).json()["ready"]
        assert (await client.get(f"{url}/config")).json()["name"] == NAME
        [counted] = (await client.get(f"{url}/stats")).json()["model_stats"]
        assert (counted["name"], counted["inference_count"]) == (NAME, 1)
        for call in ("unload", "load"):
            answer = await client.post(f"/v2/repository/models/{path}/{call}")
            assert answer.status_code == 200
        metrics = service.metrics.counts()["warptok_requests_total"]
        template = "/v2/models/{model}" + ("/versions/{version}" if version else "") + "/infer"
        assert metrics[template, 200] == 2

    run(scenario)


BAD_NAMES = (
    "..",
    "../x",
    "x/..",
    "x/../y",
    "%2e%2e",
    "x%2F..%2Fy",
    "%2Fetc%2Fpasswd",
    "/etc/passwd",
    "x//y",
    "x%2F%2Fy",
    "x%5Cy",
    "..%5Cy",
    "x%252Fy",
    "x%00y",
    ".hidden",
    "x/.hidden",
    "x/verify",
    "x/versions/1",
)


@pytest.mark.parametrize("name", BAD_NAMES)
async def send_as_it_is(client, method: str, path: str, body: bytes) -> int:
    """Send a request whose path no client has made plain, as uvicorn would pass it on."""
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"test"), (b"content-type", b"application/json")],
    }
    statuses = []

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        statuses.append(message.get("status"))

    await application_of(client)(scope, receive, send)
    return statuses[0]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_name_leaves_the_folder_or_has_two_meanings(name, tmp_path):
    folder = tmp_path / "inner" / "store"

    async def scenario(client, _):
        for kind, body in (("vocabularies", TOKENIZER_JSON), ("aliases", ALIAS)):
            status = await send_as_it_is(client, "PUT", f"/v1/{kind}/{name}", body)
            assert status in (404, 405, 422)
        for method, place in (("GET", ""), ("DELETE", ""), ("POST", "/load"), ("POST", "/unload")):
            path = f"/v1/vocabularies/{name}{place}"
            assert await send_as_it_is(client, method, path, b"") in (404, 405, 422)
        assert await send_as_it_is(client, "GET", f"/v2/models/{name}", b"") in (404, 422)
        body = {"vocabulary": unquote(name), "text": "A"}
        assert (await client.post("/v1/encode", json=body)).status_code == 404
        form = {"data": body, "files": {"corpus": ("c.txt", b"ACGT")}}
        assert (await client.post("/v1/training-jobs", **form)).status_code == 422

    run(scenario, store_dir=folder)
    assert {path.name for path in tmp_path.rglob("*")} <= {"inner", "store", "training"}


def test_an_alias_is_given_used_counted_under_the_own_name_and_removed(tmp_path):
    async def scenario(client, service):
        made = await client.put("/v1/vocabularies/own", content=TOKENIZER_JSON)
        digest = made.json()["digest"]
        url = f"/v1/aliases/{NAME}"
        given = await client.put(url, json={"vocabulary": "own"})
        assert (given.status_code, given.json()) == (201, {"alias": NAME, "vocabulary": "own"})
        assert (await client.put(url, json={"vocabulary": "own"})).status_code == 200
        listed = (await client.get("/v1/aliases")).json()
        assert listed == {"aliases": [{"alias": NAME, "vocabulary": "own"}]}
        names = {
            v["name"]: v["aliases"]
            for v in (await client.get("/v1/vocabularies")).json()["vocabularies"]
        }
        assert names["own"] == [NAME] and NAME not in names
        shown = (await client.get(f"/v1/vocabularies/{NAME}")).json()
        assert (shown["name"], shown["aliases"]) == ("own", [NAME])
        body = {"vocabulary": NAME, "text": "ACGT", "if_digest": digest}
        answer = (await client.post("/v1/encode", json=body)).json()
        assert (answer["vocabulary"], answer["digest"], answer["ids"]) == ("own", digest, [6])
        refused = await client.post("/v1/encode", json=body | {"if_digest": "sha256:00"})
        assert refused.status_code == 412
        infer = await client.post(f"/v2/models/{NAME}/infer", json=INFER)
        assert infer.json()["model_name"] == NAME  # The name that the client knows.
        [counted] = (await client.get(f"/v2/models/{NAME}/stats")).json()["model_stats"]
        assert (counted["name"], counted["inference_count"]) == ("own", 1)
        assert NAME not in (await client.get("/metrics")).text
        listed = {model["id"] for model in (await client.get("/v1/models")).json()["data"]}
        assert "own" in listed and NAME not in listed
        assert (await client.get(f"/v1/models/{NAME}")).json()["id"] == "own"
        assert (await client.get("/tokenizer_info", params={"model": NAME})).status_code == 200
        deleted = await client.delete(f"/v1/vocabularies/{NAME}")
        assert (deleted.status_code, deleted.json()["code"]) == (409, "alias_given")
        assert (await client.delete(url)).status_code == 204
        assert (await client.delete(url)).status_code == 404
        assert (await client.post("/v1/encode", json=body)).status_code == 404

    run(scenario, store_dir=tmp_path)


def test_an_upload_gives_aliases_by_its_query_or_its_form():
    async def scenario(client, _):
        by_query = await client.put(
            "/v1/vocabularies/own", params={"aliases": f"{NAME}, short"}, content=TOKENIZER_JSON
        )
        assert (by_query.status_code, by_query.json()["aliases"]) == (201, [NAME, "short"])
        form = {"files": {"file": ("tokenizer.json", OTHER_JSON)}}
        by_form = await client.put("/v1/vocabularies/other", data={"aliases": "third"}, **form)
        assert (by_form.status_code, by_form.json()["aliases"]) == (201, ["third"])
        for aliases, status, where in (
            ("short", 409, "/aliases"),
            ("own", 409, "/aliases"),
            ("new", 409, "/aliases"),
            ("../x", 422, "/aliases"),
        ):
            refused = await client.put(
                "/v1/vocabularies/new", params={"aliases": aliases}, content=OTHER_JSON
            )
            assert (refused.status_code, refused.json()["where"]) == (status, where), aliases
        assert (await client.get("/v1/vocabularies/new")).status_code == 404
        moved = await client.put(
            "/v1/vocabularies/other?aliases=short&replace=true", content=OTHER_JSON
        )
        assert moved.json()["aliases"] == ["short", "third"]
        # The same vocabulary under an alias is there already; another one cannot take its place.
        same = await client.put("/v1/vocabularies/third", content=OTHER_JSON)
        assert (same.status_code, same.json()["name"]) == (200, "other")
        taken = await client.put("/v1/vocabularies/third?replace=true", content=TOKENIZER_JSON)
        assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")

    run(scenario)


@pytest.mark.parametrize(
    ("method", "path", "body", "where"),
    [
        ("POST", "/v1/encode", {"vocabulary": "no/ne", "text": ""}, "/vocabulary"),
        ("GET", "/v1/vocabularies/no/ne", None, "/name"),
        ("DELETE", "/v1/vocabularies/no/ne", None, "/name"),
        ("POST", "/v1/vocabularies/no/ne/load", None, "/name"),
        ("POST", "/v1/vocabularies/no/ne/unload", None, "/name"),
        ("PUT", "/v1/aliases/x", {"vocabulary": "no/ne"}, "/vocabulary"),
        ("DELETE", "/v1/aliases/no/ne", None, "/alias"),
        ("POST", "/tokenize", {"model": "no/ne", "prompt": ""}, "/model"),
        ("POST", "/tokenize", {"model": "no/ne", "inputs": ""}, "/model"),
        ("POST", "/detokenize", {"model": "no/ne", "tokens": []}, "/model"),
        ("GET", "/tokenizer_info?model=no/ne", None, "/model"),
        ("GET", "/v1/models/no/ne", None, "/model"),
        ("POST", "/v1/completions/render", {"model": "no/ne", "prompt": "a"}, "/model"),
        ("POST", "/v1/responses/input_tokens", {"model": "no/ne", "input": ""}, "/model"),
        ("GET", "/v2/models/no/ne", None, "model"),
        ("POST", "/v2/models/no/ne/infer", INFER, "model"),
        ("POST", "/v2/models/no/ne.decode/infer", INFER, "model"),
        ("POST", "/v2/repository/models/no/ne/load", None, "model"),
        ("POST", "/v2/repository/models/no/ne/unload", None, "model"),
    ],
)
def test_an_unknown_name_is_refused_with_the_place_that_the_request_has(method, path, body, where):
    async def scenario(client, _):
        answer = await client.request(method, path, json=body)
        assert answer.status_code == 404
        refusal = answer.json()
        shown = refusal.get("where") or refusal.get("error")
        if isinstance(shown, dict):
            shown = shown["message"]
        assert shown == where or shown.startswith(f"{where}: "), refusal
        assert "/vocabulary" not in answer.text or where == "/vocabulary"

    run(scenario)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2/models/a/b/infer"),
        ("GET", "/v2/repository/models/a/b/load"),
        ("POST", "/v2/models/a/b/versions/1/ready"),
        ("GET", "/v1/vocabularies/a/b/verify"),
        ("PUT", "/v1/vocabularies/a/b/load"),
    ],
)
def test_a_word_of_the_api_behind_a_name_belongs_to_the_path(method, path):
    async def scenario(client, _):
        assert (await client.request(method, path)).status_code == 405

    run(scenario)


def test_a_default_that_is_not_there_is_said_where_no_model_is_named():
    async def scenario(client, _):
        answer = await client.post("/tokenize", json={"prompt": "a"})
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["param"] == "/model"
        assert "the default vocabulary no/ne does not exist" in error["message"]

    run(scenario, default_vocabulary="no/ne")


def test_the_scope_of_inference_is_that_of_the_model_that_the_path_names():
    for name, version in itertools.product(("a", NAME, "a.decode/b"), ("", "/versions/1")):
        assert find_path_scope("POST", f"/v2/models/{name}{version}/infer") == "encode"
        assert find_path_scope("POST", f"/v2/models/{name}.decode{version}/infer") == "decode"
    assert find_path_scope("PUT", f"/v1/aliases/{NAME}") == "manage"
    assert find_path_scope("GET", "/v1/aliases") == "any"


def test_an_alias_needs_the_scopes_of_its_vocabularys_calls(tmp_path):
    path = tmp_path / "keys.json"
    keys = {
        scope: {"x-api-key": api_keys.add_key(path, scope, (scope,))}
        for scope in ("encode", "decode", "manage")
    }

    async def scenario(client, _):
        body = {"vocabulary": "gpt2"}
        for scope, status in (("encode", 403), ("decode", 403), ("manage", 201)):
            answer = await client.put("/v1/aliases/a/b", json=body, headers=keys[scope])
            assert answer.status_code == status
        for model, allowed in (("a/b", "encode"), ("a/b.decode", "decode")):
            for scope, key in keys.items():
                answer = await client.post(f"/v2/models/{model}/infer", json=INFER, headers=key)
                assert (answer.status_code == 403) == (scope != allowed), (model, scope)

    run(scenario, api_keys_file=path)


def test_a_training_job_may_learn_a_name_with_a_slash_and_no_alias():
    async def scenario(client, service):
        await client.put("/v1/aliases/taken/name", json={"vocabulary": "gpt2"})
        for name, status in (("taken/name", 409), ("../dna", 422), ("my/dna", 202)):
            answer = await client.post(
                "/v1/training-jobs",
                data={"vocabulary": name, "vocabulary_size": "8"},
                files={"corpus": ("c.txt", b"ACGTACGT\nACGT\n")},
            )
            assert answer.status_code == status, answer.text
        await waiting.until(lambda: "my/dna" in service.registry.known)
        body = {"vocabulary": "my/dna", "text": "ACGT"}
        assert (await client.post("/v1/encode", json=body)).status_code == 200

    run(scenario)


BODIES = [
    ("PUT", "/v1/aliases/short", ALIAS),
    ("PUT", "/v1/vocabularies/mine", TOKENIZER_JSON),
    ("POST", "/v1/vocabularies/gpt2/verify", b'{"samples": 3}'),
    ("POST", "/v2/repository/index", b'{"ready": true}'),
    ("POST", "/tokenize", b'{"model": "gpt2", "prompt": "Hello"}'),
]


def test_an_upload_of_several_files_may_be_compressed_or_in_pieces():
    form = httpx.Request(
        "PUT", "http://x", files={"file": ("tokenizer.json", TOKENIZER_JSON)}, data={"aliases": "a"}
    )
    content, headers = form.read(), {"content-type": form.headers["content-type"]}

    async def pieces():  # Without a Content-Length.
        for begin in range(0, len(content), 1000):
            yield content[begin : begin + 1000]

    async def scenario(client, _):
        path = "/v1/vocabularies/mine"
        answer = await client.put(path, content=pieces(), headers=headers)
        assert (answer.status_code, answer.json()["aliases"]) == (201, ["a"])
        packed = headers | {"content-encoding": "gzip"}
        answer = await client.put(path, content=gzip.compress(content), headers=packed)
        assert answer.status_code == 200
        long = gzip.compress(content.replace(b"tokenizer.json", b" " * 60_000))
        answer = await client.put(path, content=long, headers=packed)
        assert answer.status_code == 413

    run(scenario, max_vocabulary_bytes=50_000)


@pytest.mark.parametrize(("method", "path", "body"), BODIES)
def test_every_body_may_be_compressed_and_has_a_limit(method, path, body):
    async def scenario(client, _):
        for headers in ({}, {"content-type": "text/plain"}, {"content-encoding": "gzip"}):
            content = gzip.compress(body) if "content-encoding" in headers else body
            answer = await client.request(method, path, content=content, headers=headers)
            assert answer.is_success, answer.text
        headers = {"content-encoding": "gzip"}
        long = b" " * 100_000
        for content in (long, gzip.compress(long)):
            sent = headers if len(content) < len(long) else {}
            answer = await client.request(method, path, content=content, headers=sent)
            assert answer.status_code == 413, answer.text

        async def pieces():  # Without a Content-Length.
            yield long

        answer = await client.request(method, path, content=pieces())
        assert answer.status_code == 413, answer.text
        answer = await client.request(method, path, content=body, headers=headers)
        assert answer.status_code == 400, answer.text

    run(scenario, max_body_bytes=50_000, max_vocabulary_bytes=50_000)
