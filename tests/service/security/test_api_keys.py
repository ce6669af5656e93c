"""Keys: who may do what, through every API; files of keys that are wrong, or change."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import grpc
import httpx
import pytest

from service.apis.grpc.server import GrpcServer
from service.core.errors import Unauthorized
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.protos import inference_pb2, warptok_pb2
from service.security import api_keys
from service.security.guard import Guard, is_loopback
from service.security.scopes import OPEN, find_method_scope, find_path_scope
from service.server.app import ROUTES, create_app
from tests.support.app_client import serving
from tests.support.server_process import server_process
from tests.support.waiting import GIVEN_UP_S, run, wait_until

ENGINE = CpuEngine()
BODY = {"vocabulary": "gpt2", "text": "Hello"}


@pytest.fixture
def keys(tmp_path):
    """A file of keys, and the secrets by name: one for each scope, one for all."""
    path = tmp_path / "keys.json"
    secrets = {scope: api_keys.add_key(path, scope, (scope,)) for scope in api_keys.SCOPES}
    return path, secrets | {"all": api_keys.add_key(path, "all", api_keys.SCOPES)}


def every_route():
    for routes in ROUTES:
        for route in routes.router.routes:
            for method in sorted(route.methods - {"HEAD"}):
                yield method, route.path_format


@pytest.mark.parametrize(("method", "path"), sorted(set(every_route())))
def test_every_route_but_the_open_ones_needs_a_key(method, path, keys):
    async def scenario():
        async with serving(ENGINE, api_keys_file=keys[0]) as (client, _):
            answer = await client.request(method, path.format_map(Any("gpt2")))
            if path in OPEN:
                assert answer.status_code != 401
            else:
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"

    run(scenario)


class Any(dict):
    """Every name in a path is the same."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def __missing__(self, key):
        return self.value


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/v1/encode", "encode"),
        ("POST", "/v1/encode/fasta", "encode"),
        ("POST", "/v1/count", "encode"),
        ("POST", "/tokenize", "encode"),
        ("POST", "/v1/decode", "decode"),
        ("POST", "/v1/decode/batch", "decode"),
        ("POST", "/detokenize", "decode"),
        ("POST", "/v1/detokenize", "decode"),
        ("POST", "/decode", "decode"),
        ("POST", "/v2/models/gpt2/infer", "encode"),
        ("POST", "/v2/models/gpt2.decode/infer", "decode"),
        ("POST", "/v2/models/gpt2.decode/versions/1/infer", "decode"),
        ("GET", "/v1/vocabularies/gpt2", "any"),
        ("PUT", "/v1/vocabularies/mine", "manage"),
        ("DELETE", "/v1/vocabularies/mine", "manage"),
        ("POST", "/v1/vocabularies/gpt2/unload", "manage"),
        ("POST", "/v2/repository/models/gpt2/load", "manage"),
        ("POST", "/v2/repository/index", "any"),
        ("GET", "/v2/systemsharedmemory/status", "manage"),
        ("POST", "/v2/cudasharedmemory/region/r/register", "manage"),
        ("POST", "/v1/training-jobs", "train"),
        ("GET", "/v1/training-jobs/7", "train"),
        ("GET", "/livez", None),
        ("GET", "/something/else", "any"),
        ("POST", "/something/else", "encode"),
    ],
)
def test_paths_have_their_scopes(method, path, scope):
    assert find_path_scope(method, path) == scope


OWN = "/warptok.v1.Tokenizer/"
OIP = "/inference.GRPCInferenceService/"


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        (f"{OWN}Encode", "encode"),
        (f"{OWN}EncodeStream", "encode"),
        (f"{OWN}DecodeBatch", "decode"),
        (f"{OWN}PutVocabulary", "manage"),
        (f"{OWN}ListVocabularies", "any"),
        (f"{OIP}ModelInfer", "any"),
        (f"{OIP}ModelStreamInfer", "any"),
        (f"{OIP}ModelMetadata", "any"),
        (f"{OIP}ServerLive", None),
        (f"{OIP}ServerMetadata", "any"),
        (f"{OIP}RepositoryModelUnload", "manage"),
        (f"{OIP}RepositoryIndex", "any"),
        (f"{OIP}SystemSharedMemoryStatus", "manage"),
        ("/grpc.health.v1.Health/Check", None),
    ],
)
def test_methods_have_their_scopes(path, scope):
    assert find_method_scope(path) == scope


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_a_key_may_do_what_its_scopes_say(header, keys):
    path, secrets = keys

    async def scenario():
        async with serving(ENGINE, api_keys_file=path) as (client, _):
            for name, status in (("encode", 200), ("decode", 403), ("all", 200)):
                value = f"Bearer {secrets[name]}" if header == "authorization" else secrets[name]
                answer = await client.post("/v1/encode", json=BODY, headers={header: value})
                assert answer.status_code == status
                if status == 403:
                    assert answer.json()["code"] == "forbidden"
                    assert "the key decode" in answer.json()["detail"]
            answer = await client.post("/v1/encode", json=BODY, headers={header: "Bearer wt-no"})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")

    run(scenario)


def test_a_refusal_has_the_shape_of_its_path(keys):
    async def scenario():
        async with serving(ENGINE, api_keys_file=keys[0]) as (client, _):
            assert isinstance((await client.get("/v2")).json()["error"], str)
            assert (await client.post("/tokenize", json={})).json()["error"]["code"] == 401
            answer = await client.post("/v1/messages/count_tokens", json={})
            assert answer.json()["type"] == "error"

    run(scenario)


def test_keys_hold_for_the_short_way_on_a_real_connection(keys, tmp_path):
    path, secrets = keys
    settings = {"WARPTOK_PRELOAD": "gpt2", "WARPTOK_API_KEYS_FILE": str(path)}
    with server_process(tmp_path, settings) as server:
        server.wait_ready()
        with httpx.Client(base_url=server.url, timeout=GIVEN_UP_S) as client:
            assert client.post("/v1/encode", json=BODY).status_code == 401
            headers = {"authorization": f"Bearer {secrets['encode']}"}
            assert client.post("/v1/encode", json=BODY, headers=headers).json()["ids"] == [15496]
            headers = {"authorization": f"Bearer {secrets['decode']}"}
            assert client.post("/v1/encode", json=BODY, headers=headers).status_code == 403
            assert client.get("/livez").status_code == 200


def test_keys_hold_for_grpc(keys):
    path, secrets = keys

    async def scenario():
        settings = Settings(preload="none", api_keys_file=path)
        app = create_app(settings, ENGINE)
        async with app.running():
            server = GrpcServer(app.oip)
            await server.start("127.0.0.1", 0)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                encode = channel.unary_unary(
                    f"{OWN}Encode",
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=warptok_pb2.EncodeResponse.FromString,
                )
                infer = channel.unary_unary(
                    f"{OIP}ModelInfer",
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=inference_pb2.ModelInferResponse.FromString,
                )
                request = warptok_pb2.EncodeRequest(vocabulary="gpt2", text=b"Hello")
                for metadata, code in (
                    (None, "UNAUTHENTICATED"),
                    ((("x-api-key", secrets["decode"]),), "PERMISSION_DENIED"),
                ):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await encode(request, metadata=metadata)
                    assert caught.value.code().name == code
                metadata = (("authorization", f"Bearer {secrets['encode']}"),)
                assert (await encode(request, metadata=metadata)).num_tokens == 1
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    decode = inference_pb2.ModelInferRequest(model_name="gpt2.decode")
                    await infer(decode, metadata=metadata)
                assert caught.value.code().name == "PERMISSION_DENIED"
            await server.stop(0)

    run(scenario)


def test_without_keys_a_loopback_address_is_open_and_another_manages_nothing(caplog):
    async def scenario():
        async with serving(ENGINE, host="127.0.0.1") as (client, _):
            assert (await client.delete("/v1/vocabularies/none")).status_code == 404
        with caplog.at_level(logging.WARNING):
            async with serving(ENGINE, host="0.0.0.0") as (client, _):
                answer = await client.post("/v1/encode", json=BODY)
                assert answer.json()["ids"] == [15496]
                answer = await client.delete("/v1/vocabularies/none")
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
                assert (await client.post("/v2/systemsharedmemory/unregister")).status_code == 403
        assert "vocabularies cannot be managed" in caplog.text

    run(scenario)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_address(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example"])
def test_no_loopback_address(host):
    assert not is_loopback(host)


GOOD = {"name": "a", "sha256": "0" * 64, "scopes": ["encode"]}
WRONG = [
    ("{", "Expecting"),
    ("{}", "must be a list"),
    (json.dumps([5]), "key 0"),
    (json.dumps([GOOD, GOOD | {"more": 1}]), "key 1: must have"),
    (json.dumps([GOOD | {"name": ""}]), "name"),
    (json.dumps([GOOD | {"sha256": "abc"}]), "64 hexadecimal"),
    (json.dumps([GOOD | {"scopes": ["root"]}]), "scopes"),
    (json.dumps([GOOD | {"scopes": []}]), "scopes"),
    (json.dumps([GOOD | {"scopes": [["encode", "decode"]]}]), "scopes"),
    (json.dumps([GOOD, GOOD | {"sha256": "1" * 64}]), "same name"),
    (json.dumps([GOOD, GOOD | {"name": "b"}]), "same digest"),
]


@pytest.mark.parametrize(("content", "words"), WRONG)
def test_a_file_of_keys_that_is_wrong_stops_the_start(content, words, tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        Guard(path, "127.0.0.1")
    with pytest.raises(ValueError, match="No such file"):
        Guard(tmp_path / "none.json", "127.0.0.1")


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(keys, caplog):
    path, secrets = keys
    guard = Guard(path, "127.0.0.1")
    later = api_keys.add_key(path, "later", ("encode",))
    with pytest.raises(Unauthorized):
        guard.check(later, "encode")
    guard.refresh()
    assert guard.check(later, "encode") == "later"
    assert not guard.is_stale
    path.write_text("{")
    os.utime(path, ns=(0, 0))  # Another time, however coarse the file system's clock is.
    guard.refresh()
    assert guard.is_stale
    assert guard.check(secrets["encode"], "encode") == "encode"
    assert "stay as they were" in caplog.text
    guard.refresh()
    assert caplog.text.count("stay as they were") == 1


def revoke_by(path, write):
    """Replace the file of keys by one with a new key, whose secret is returned."""
    other = path.with_name("other.json")
    secret = api_keys.add_key(other, "new", ("encode",))
    write(other)
    os.replace(other, path)
    return secret


def test_a_file_that_could_not_be_read_is_read_when_it_can_be(keys, monkeypatch):
    """Only the time of the change of its permissions differs then."""
    path, secrets = keys
    guard = Guard(path, "127.0.0.1")
    secret = revoke_by(path, lambda other: None)
    with monkeypatch.context() as patch:  # Root may read every file.
        patch.setattr(type(path), "read_text", lambda *_, **__: open("/nobody/may/read"))
        guard.refresh()
    assert guard.check(secrets["encode"], "encode") == "encode"
    time.sleep(0.02)  # The clock of files has steps of up to 10 ms.
    assert guard.is_stale
    path.chmod(0o644)
    guard.refresh()
    assert not guard.is_stale
    assert guard.check(secret, "encode") == "new"
    with pytest.raises(Unauthorized):
        guard.check(secrets["encode"], "encode")


def test_a_file_of_the_same_time_but_another_size_is_read(keys):
    """As one that is read while it is written."""
    path, _ = keys
    guard = Guard(path, "127.0.0.1")
    before = path.stat()
    secret = api_keys.new_key("same", ("encode",))
    path.write_text(json.dumps([secret[1]]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    guard.refresh()
    assert guard.check(secret[0], "encode") == "same"


SCOPES_IN_SCOPES = json.dumps([GOOD | {"scopes": [["encode"]]}])


@pytest.mark.parametrize("content", ["[" * 100_000, SCOPES_IN_SCOPES, "fifo", "closed folder"])
def test_what_could_block_or_end_the_watch_changes_nothing(keys, caplog, content, monkeypatch):
    path, secrets = keys
    guard = Guard(path, "127.0.0.1")
    path.unlink()
    if content == "fifo":
        os.mkfifo(path)
    elif content == "closed folder":  # Root may open every folder.
        denied = PermissionError(errno.EACCES, "Permission denied")
        monkeypatch.setattr(type(path), "stat", Mock(side_effect=denied))
    else:
        path.write_text(content)
    guard.refresh()
    guard.refresh()
    assert guard.check(secrets["encode"], "encode") == "encode"
    assert caplog.text.count("stay as they were") == 1


def test_keys_are_read_again_on_demand(keys):
    path, _ = keys
    guard = Guard(path, "127.0.0.1")
    guard.reload()
    assert guard.generation == 1


@pytest.mark.slow
@pytest.mark.parametrize("front_ends", ["0", "1"])
def test_sighup_reads_the_keys_again_and_ends_nothing(keys, tmp_path, front_ends):
    settings = {
        "WARPTOK_API_KEYS_FILE": str(keys[0]),
        "WARPTOK_FRONTENDS": front_ends,
        "WARPTOK_PRELOAD": "none",
    }
    with server_process(tmp_path, settings) as server:
        server.process.send_signal(signal.SIGHUP)
        processes = 1 + int(front_ends)
        wait_until(lambda: server.log.read_text().count("keys were read") == processes)
        assert httpx.get(server.url + "/readyz").status_code == 200


def test_the_command_line_makes_keys(tmp_path):
    path = tmp_path / "keys.json"
    command = [sys.executable, "-m", "service", "key", "me", "--file", str(path)]
    made = subprocess.run([*command, "--scopes", "manage"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    guard = Guard(path, "0.0.0.0")
    assert guard.check(made.stdout.strip(), "manage") == "me"
    assert made.stdout.strip() not in path.read_text()
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode != 0
    assert "already" in again.stderr
