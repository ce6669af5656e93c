"""Every route and method that the service lists, with every kind of key and with none.

The tables list the scope that each path and each method needs. A new one that is in no table fails
here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator

import grpc
import httpx
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from starlette.routing import Mount

from service.apis.grpc.server import GrpcServer
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.protos import inference_pb2
from service.security import api_keys
from service.security.api_keys import SCOPES
from service.server.app import create_app
from tests.support.waiting import run

ENGINE = CpuEngine()
PUBLIC = "0.0.0.0"  # What the service is told; nothing of these tests leaves the machine.
PATHS: dict[str | None, str] = {
    None: """
        GET / GET /livez GET /readyz GET /health GET /ping POST /ping GET /version GET /metrics
        GET /docs GET /redoc GET /openapi.json GET /static-offline-docs/
        GET /v2/health/live GET /v2/health/ready
    """,
    "any": """
        GET /docs/oauth2-redirect GET /info GET /v1/info GET /v1/models GET /v1/models/{model}
        GET /tokenizer_info GET /v1/vocabularies GET /v1/vocabularies/{name} GET /v1/aliases
        GET /v2 GET /v2/models/stats GET /v2/models/{model} GET /v2/models/{model}/ready
        GET /v2/models/{model}/config GET /v2/models/{model}/stats
        GET /v2/models/{model}/versions/{version} GET /v2/models/{model}/versions/{version}/ready
        GET /v2/models/{model}/versions/{version}/config
        GET /v2/models/{model}/versions/{version}/stats POST /v2/repository/index
    """,
    "encode": """
        POST /v1/encode POST /v1/encode/batch POST /v1/encode/fasta POST /v1/count POST /v1/windows
        POST /v1/chunks POST /tokenize POST /v1/tokenize POST /v1/completions/render
        POST /tokenize/count POST /v1/tokenize/count POST /extras/tokenize/count
        POST /v1/chat/completions/render POST /v1/messages/count_tokens
        POST /v1/responses/input_tokens POST /apply-template
        POST /v2/models/{model}/infer
        POST /v2/models/{model}/versions/{version}/infer
    """,
    "decode": """
        POST /v1/decode POST /v1/decode/batch POST /detokenize POST /v1/detokenize POST /decode
        POST /v1/completions/derender POST /v1/chat/completions/derender
    """,
    "train": """
        GET /v1/training-jobs POST /v1/training-jobs GET /v1/training-jobs/{id}
        DELETE /v1/training-jobs/{id} POST /v1/training-jobs/{id}/resume
    """,
    "manage": """
        PUT /v1/vocabularies/{name} DELETE /v1/vocabularies/{name}
        POST /v1/vocabularies/{name}/load POST /v1/vocabularies/{name}/unload
        POST /v1/vocabularies/{name}/verify
        PUT /v1/aliases/{alias} DELETE /v1/aliases/{alias}
        POST /v2/repository/models/{model}/load POST /v2/repository/models/{model}/unload
        GET /v2/systemsharedmemory/status GET /v2/systemsharedmemory/region/{name}/status
        POST /v2/systemsharedmemory/region/{name}/register
        POST /v2/systemsharedmemory/unregister POST /v2/systemsharedmemory/region/{name}/unregister
        GET /v2/cudasharedmemory/status GET /v2/cudasharedmemory/region/{name}/status
        POST /v2/cudasharedmemory/region/{name}/register
        POST /v2/cudasharedmemory/unregister POST /v2/cudasharedmemory/region/{name}/unregister
    """,
}
METHODS: dict[str | None, str] = {
    None: "ServerLive ServerReady Check List Watch ServerReflectionInfo",
    "any": """
        ListVocabularies GetVocabulary GetInfo ServerMetadata ModelReady ModelMetadata ModelConfig
        ModelStatistics RepositoryIndex ModelInfer ModelStreamInfer
    """,
    "encode": "Encode EncodeBatch EncodeStream Count Windows Chunks",
    "decode": "Decode DecodeBatch",
    "manage": """
        PutVocabulary DeleteVocabulary PutAlias DeleteAlias
        RepositoryModelLoad RepositoryModelUnload
        SystemSharedMemoryStatus SystemSharedMemoryRegister SystemSharedMemoryUnregister
        CudaSharedMemoryStatus CudaSharedMemoryRegister CudaSharedMemoryUnregister
    """,
}
HTTP_SCOPES = {
    tuple(pair): scope
    for scope, words in PATHS.items()
    for pair in zip(words.split()[::2], words.split()[1::2], strict=True)
}
METHOD_SCOPES = {name: scope for scope, words in METHODS.items() for name in words.split()}


class Clients:
    """Clients of a service over HTTP and gRPC."""

    def __init__(self, app, client: httpx.AsyncClient, channel: grpc.aio.Channel) -> None:
        self.app, self.http, self.channel = app, client, channel

    async def status_of(self, method: str, path: str, key: str | None) -> httpx.Response:
        headers = {} if key is None else {b"x-api-key": key.encode("latin-1")}
        url = path.replace("{model}", "none").replace("{name}", "none").replace("{alias}", "none")
        url = url.replace("{version}", "1").replace("{id}", "none")
        return await self.http.request(method, url, headers=headers, content=b"{}")

    async def code_of(self, path: str, key: str | None, message: bytes = b"") -> str:
        """A call's status; the bytes on the wire are the same for all kinds of calls.

        The message goes out with the call: grpc.aio reports a message that it sends behind a
        refusal as INTERNAL (https://github.com/grpc/grpc/issues/36066).
        """
        call = self.channel.unary_stream(path)
        metadata = () if key is None else (("x-api-key", key),)
        try:
            async for _ in call(message, metadata=metadata, timeout=120):
                break
            return "OK"
        except grpc.aio.AioRpcError as error:
            return error.code().name


@contextlib.asynccontextmanager
async def open_clients(**settings: object) -> AsyncIterator[Clients]:
    app = create_app(Settings(**{"preload": "none"} | settings), ENGINE)
    async with app.running():
        server = GrpcServer(app.oip)
        await server.start("127.0.0.1", 0)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        try:
            async with (
                httpx.AsyncClient(transport=transport, base_url="http://test") as client,
                grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
            ):
                yield Clients(app, client, channel)
        finally:
            await server.stop(0)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A file of keys, and secrets: one with each scope alone, one with all scopes but it."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    secrets = {scope: api_keys.add_key(path, scope, (scope,)) for scope in SCOPES}
    for scope in SCOPES:
        others = tuple(other for other in SCOPES if other != scope)
        secrets[f"not {scope}"] = api_keys.add_key(path, f"not {scope}", others)
    return path, secrets


def routes_of(router) -> Iterator[tuple[str, str]]:
    """Every method and path of a router and of those inside it; a mount is a path that is read."""
    for route in router.routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from routes_of(inner)
        elif isinstance(route, Mount):
            yield "GET", f"{route.path}/"
        else:
            yield from ((method, route.path_format) for method in route.methods - {"HEAD"})


async def methods_of(channel: grpc.aio.Channel) -> list[str]:
    """Every gRPC method that the server has, as it says itself."""
    request = reflection_pb2.ServerReflectionRequest
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)

    async def ask(**asked):
        async for answer in stub.ServerReflectionInfo(iter([request(**asked)])):
            return answer

    services = [s.name for s in (await ask(list_services="")).list_services_response.service]
    paths = []
    for service in services:
        found = (await ask(file_containing_symbol=service)).file_descriptor_response
        for content in found.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(content)
            for each in file.service:
                if f"{file.package}.{each.name}" == service:
                    paths += [f"/{service}/{method.name}" for method in each.method]
    return paths


def test_every_path_and_every_method_is_in_the_tables():
    async def scenario():
        async with open_clients() as open_house:
            app = open_house.app.fastapi  # Behind the short ways.
            paths = set(routes_of(app))
            described = {
                (method.upper(), path)
                for path, operations in app.openapi()["paths"].items()
                for method in operations
            }
            assert described <= paths
            assert paths == set(HTTP_SCOPES)
            methods = await methods_of(open_house.channel)
            assert len(methods) == len(METHOD_SCOPES)
            assert {path.rpartition("/")[2] for path in methods} == set(METHOD_SCOPES)

    run(scenario)


def test_a_path_asks_for_a_key_that_is_known_and_has_its_scope(keys, caplog):
    path, secrets = keys

    async def scenario():
        async with open_clients(api_keys_file=path) as guarded:
            for (method, place), scope in HTTP_SCOPES.items():
                for key in (None, "", "wt-unknown", "\xe9"):
                    answer = await guarded.status_of(method, place, key)
                    assert (answer.status_code == 401) == (scope is not None), (method, place, key)
                    if scope is not None:
                        assert answer.headers["www-authenticate"] == "Bearer"
                        assert answer.headers["content-type"] in JSON_TYPES
                wrong = secrets.get(f"not {scope}")
                if wrong is not None:
                    answer = await guarded.status_of(method, place, wrong)
                    assert answer.status_code == 403, (method, place)
                    assert f"does not have the scope {scope}" in answer.text
                right = secrets[scope if scope in SCOPES else "not encode"]
                answer = await guarded.status_of(method, place, right)
                assert answer.status_code != 401, (method, place)
                if answer.status_code == 403:  # For another reason.
                    assert "does not have the scope" not in answer.text, (method, place)

    with caplog.at_level(logging.DEBUG, "service"):
        run(scenario)
    assert not any(secret in caplog.text for secret in secrets.values())
    assert "wt-unknown" not in caplog.text


JSON_TYPES = ("application/json", "application/problem+json")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PATCH", "TRACE", "post", "ENCODE"])
def test_no_other_method_gets_past_the_keys(method, keys):
    async def scenario():
        async with open_clients(api_keys_file=keys[0]) as guarded:
            for _, path in HTTP_SCOPES:
                if HTTP_SCOPES.get(("GET", path), "") is not None:
                    answer = await guarded.status_of(method, path, None)
                    assert answer.status_code == 401, path

    run(scenario)


@pytest.mark.parametrize(
    "spelling", ["/%2F*", "*/", "*//", "*;a=b", "/livez/..*", "*%2f", "*%3Fa", "*.json", "/.*"]
)
def test_no_other_spelling_of_a_path_gets_past_the_keys(spelling, keys):
    async def scenario():
        async with open_clients(api_keys_file=keys[0]) as guarded:
            for (method, path), scope in HTTP_SCOPES.items():
                if scope is not None:
                    answer = await guarded.status_of(method, spelling.replace("*", path), None)
                    assert answer.status_code == 401, path

    run(scenario)


def test_a_method_asks_for_a_key_that_is_known_and_has_its_scope(keys):
    path, secrets = keys

    async def scenario():
        async with open_clients(api_keys_file=path) as guarded:
            for method in await methods_of(guarded.channel):
                scope = METHOD_SCOPES[method.rpartition("/")[2]]
                for key in (None, "wt-unknown"):
                    code = await guarded.code_of(method, key)
                    assert (code == "UNAUTHENTICATED") == (scope is not None), method
                wrong = secrets.get(f"not {scope}")
                if wrong is not None:
                    assert await guarded.code_of(method, wrong) == "PERMISSION_DENIED", method
                right = secrets[scope if scope in SCOPES else "not encode"]
                code = await guarded.code_of(method, right)
                denied = scope == "manage" and "SharedMemory" in method  # They are off.
                assert (code == "PERMISSION_DENIED") == denied, method
                assert code not in ("UNAUTHENTICATED", "INTERNAL", "UNKNOWN"), method

    run(scenario)


@pytest.mark.parametrize(("model", "scope"), [("gpn", "encode"), ("gpn.decode", "decode")])
def test_an_inference_asks_for_the_scope_of_its_model(model, scope, keys):
    path, secrets = keys
    message = inference_pb2.ModelInferRequest(model_name=model).SerializeToString()

    async def scenario():
        async with open_clients(api_keys_file=path) as guarded:
            for name, secret in secrets.items():
                has_scope = scope in name and "not" not in name
                has_scope |= name.startswith("not ") and scope not in name
                answer = await guarded.http.post(
                    f"/v2/models/{model}/infer", json={"inputs": []}, headers={"x-api-key": secret}
                )
                assert answer.status_code == (422 if has_scope else 403), name
                infer = f"/{inference_pb2.DESCRIPTOR.package}.GRPCInferenceService/ModelInfer"
                code = await guarded.code_of(infer, secret, message)
                assert code == ("INVALID_ARGUMENT" if has_scope else "PERMISSION_DENIED"), name

    run(scenario)


def test_without_keys_a_public_address_encodes_and_decodes_and_nothing_else():
    async def scenario():
        async with open_clients(host=PUBLIC, shared_memory=True) as public:
            for (method, place), scope in HTTP_SCOPES.items():
                answer = await public.status_of(method, place, None)
                is_closed = scope in ("manage", "train")
                assert (answer.status_code == 403) == is_closed, (method, place)
                assert answer.status_code != 401
                assert ("no API keys are set" in answer.text) == is_closed
            for method in await methods_of(public.channel):
                is_closed = METHOD_SCOPES[method.rpartition("/")[2]] in ("manage", "train")
                code = await public.code_of(method, None)
                assert (code == "PERMISSION_DENIED") == is_closed, method

    run(scenario)
