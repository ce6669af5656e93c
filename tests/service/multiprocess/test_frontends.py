"""Two front ends and an engine process: the same ids, and what happens when one of them dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_status import rpc_status
from prometheus_client.parser import text_string_to_metric_families

from service.protos import warptok_pb2 as pb
from tests.apis.test_same_ids import APIS, CASES, Clients
from tests.support.data_files import ROOT
from tests.support.server_process import (
    AT_ONCE_S,
    Server,
    half_request,
    server_process,
    service_environment,
)
from tests.support.waiting import run, wait_until
from vocabularies.builtin import load
from vocabularies.reference import tokenizer

SETTINGS = {
    "WARPTOK_FRONTENDS": "2",
    "WARPTOK_PRELOAD": "gpt2",
    "WARPTOK_SHARED_MEMORY": "true",
}
HELLO = {"vocabulary": "gpt2", "text": "Hello, world!"}
HELLO_IDS = [15496, 11, 995, 0]
TIMES = 3_000  # As many go to the engine process; fewer are encoded where they come in.
HELLOS = {"vocabulary": "gpt2", "text": HELLO["text"] * TIMES}
NAMES = ("gpt2", "dnabert2", "mtdna6")
MISSED = "1 of 2 front ends are being started"
WAIT_S = 180.0
NUM_CLIENTS = 6
REQUESTS_PER_CONNECTION = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server_process(tmp_path_factory.mktemp("frontends"), SETTINGS) as running:
        yield running


def processes(server: Server) -> dict[str, int]:
    """The process ids of the engine and the front ends, by name."""
    supervisor = server.process.pid
    found = {}
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # It ended meanwhile.
            command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            if b"service.multiprocess.child" in command:
                found[json.loads(command[-1])["name"]] = int(pid)
    return found


@contextlib.contextmanager
def nothing_started_again(server: Server) -> Iterator[None]:
    """The supervisor stands still meanwhile, so that what has ended stays away."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def post(server: Server, path: str, body: object) -> httpx.Response:
    """On a connection of its own, so that any front end may get it."""
    return httpx.post(server.url + path, json=body, timeout=WAIT_S)


def download(server: Server, name: str, format: str) -> bytes:
    """A vocabulary as a file."""
    url = f"{server.url}/v1/vocabularies/{name}?format={format}"
    return httpx.get(url, timeout=WAIT_S).content


def counted(server: Server, route: str) -> Counter[int]:
    """Answers to a route by status, of all processes."""
    text = httpx.get(server.url + "/metrics", timeout=WAIT_S).text
    counts: Counter[int] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "warptok_requests_total" and sample.labels["route"] == route:
                counts[int(sample.labels["status"])] += int(sample.value)
    return counts


class Load:
    """Clients that send requests one after another until they are stopped, and count answers.

    Each client connects again after some requests. The kernel draws a front end for every
    connection, so that all front ends get requests sooner or later.
    """

    def __init__(self, server: Server, body: dict[str, str] = HELLO, times: int = 1) -> None:
        self.server, self.answers, self.is_over = server, Counter[int](), threading.Event()
        self.body, self.ids = body, HELLO_IDS * times
        self.broken: list[str] = []
        self.counting = threading.Lock()
        self.threads = [threading.Thread(target=self._ask) for _ in range(NUM_CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _ask(self) -> None:
        while not self.is_over.is_set():
            try:
                with httpx.Client(base_url=self.server.url, timeout=WAIT_S) as client:
                    for _ in range(REQUESTS_PER_CONNECTION):
                        if self.is_over.is_set():
                            return
                        answer = client.post("/v1/encode", json=self.body)
                        with self.counting:
                            self.answers[answer.status_code] += 1
                        if answer.status_code == 200:
                            assert answer.json()["ids"] == self.ids
            except httpx.TransportError as error:
                self.broken.append(type(error).__name__)
                if self.server.process.poll() is not None:
                    return

    def stop(self) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join(WAIT_S)


@pytest.mark.parametrize(("name", "texts"), [case for case in CASES if case[0] in NAMES])
def test_every_api_of_two_front_ends_gives_the_references_ids(server, name, texts):
    expected = [tokenizer.encode(load(name), text).ids for text in texts]
    grpc_address = server.log.read_text().split("gRPC on ")[1].split()[0]

    async def scenario() -> None:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=WAIT_S) as client,
            grpc.aio.insecure_channel(grpc_address) as channel,
        ):
            for api in APIS:
                assert await api(Clients(client, channel), name, texts) == expected, api.__name__

    run(scenario)


def test_decoded_counted_and_refused_as_by_one_process(server):
    ids = {"vocabulary": "gpt2", "ids": HELLO_IDS}
    assert post(server, "/v1/decode", ids).json()["text"] == HELLO["text"]
    rows = {"vocabulary": "gpt2", "ids": [HELLO_IDS, [10**6], [], [10**30]]}
    decoded = post(server, "/v1/decode/batch", rows).json()
    assert decoded["texts"] == [HELLO["text"], "", "", ""]
    assert [error["row"] for error in decoded["errors"]] == [1, 3]
    texts = {"vocabulary": "gpt2", "texts": ["a b", "<|endoftext|>"], "special": "refuse"}
    counted = post(server, "/v1/count", texts).json()
    assert (counted["num_tokens"], counted["errors"][0]["row"]) == ([2, 0], 1)
    cut = {**HELLO, "max_length": 2, "return_offsets": "bytes"}
    encoded = post(server, "/v1/encode", cut).json()
    assert encoded["ids"] == HELLO_IDS[:2]
    assert encoded["offsets"] == [[0, 5], [5, 6]]
    assert encoded["truncated"] == {"num_tokens": 4, "kept": [0, 2]}


def test_a_vocabulary_is_known_to_every_front_end_when_its_upload_is_answered(server):
    url = server.url + "/v1/vocabularies/mine"
    files = {
        name: download(server, name, "vocab.txt") for name in ("dnabert1_4mer", "dnabert1_3mer")
    }
    ids = {}
    for name, content in files.items():
        answer = httpx.put(url + "?replace=true", content=content, timeout=WAIT_S)
        assert answer.status_code == 201, answer.text
        body = {"vocabulary": "mine", "text": "ACGTACGT"}
        found = [post(server, "/v1/encode", body) for _ in range(12)]
        assert {response.status_code for response in found} == {200}
        (ids[name],) = {tuple(response.json()["ids"]) for response in found}
    assert ids["dnabert1_4mer"] != ids["dnabert1_3mer"]
    document = json.loads(download(server, "dnabert2", "tokenizer.json"))
    document["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0}
    content = json.dumps(document)
    notes = httpx.put(url + "?replace=true", content=content, timeout=WAIT_S).json()["notes"]
    assert len(notes) == 1
    assert all(httpx.get(url, timeout=WAIT_S).json()["notes"] == notes for _ in range(12))
    assert httpx.delete(url, timeout=WAIT_S).status_code == 204
    gone = {post(server, "/v1/encode", body).status_code for _ in range(12)}
    assert gone == {404}


@pytest.mark.slow
def test_a_killed_front_end_is_missed_and_started_again(server):
    before = processes(server)

    def is_missed() -> bool:
        """Seen by the other one; a connection that the dead one has accepted is reset."""
        try:
            return MISSED in httpx.get(server.url + "/readyz", timeout=2).json()["reasons"]
        except httpx.TransportError:
            return False

    with nothing_started_again(server):
        os.kill(before["front-0"], signal.SIGKILL)
        wait_until(is_missed, "missing it")
    wait_until(lambda: len(processes(server)) == 3, "its start")
    server.wait_ready()
    assert "front-0 ended with -9 and is started again" in server.log.read_text()
    after = processes(server)
    assert {name: after[name] for name in ("engine", "front-1")} == {
        name: before[name] for name in ("engine", "front-1")
    }
    assert post(server, "/v1/encode", HELLO).json()["ids"] == HELLO_IDS


@pytest.mark.slow
def test_new_connections_do_not_wait_for_a_front_end_that_is_started_again(server):
    before = processes(server)["front-1"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: processes(server).get("front-1", before) != before, "its start")
    after = processes(server)["front-1"]
    os.kill(after, signal.SIGSTOP)
    try:
        for _ in range(40):
            assert post(server, "/v1/encode", HELLO).json()["ids"] == HELLO_IDS
    finally:
        os.kill(after, signal.SIGCONT)
    server.wait_ready()


@pytest.mark.slow
def test_a_killed_engine_loses_no_request_without_a_word_and_keeps_uploads(server):
    content = download(server, "gpt2", "tokenizer.json")
    httpx.put(server.url + "/v1/vocabularies/kept", content=content, timeout=WAIT_S)
    before, engine = counted(server, "/v1/encode"), processes(server)["engine"]
    load = Load(server, HELLOS, TIMES)
    wait_until(lambda: load.answers[200] > 50, "load")
    with nothing_started_again(server):
        os.kill(engine, signal.SIGKILL)
        wait_until(lambda: load.answers[503] > 0, "seeing the end of the engine")
        answer = httpx.get(server.url + "/readyz", timeout=WAIT_S)
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        assert "engine process" in answer.json()["reasons"][0]
    server.wait_ready()
    healed = load.answers[200]
    wait_until(lambda: load.answers[200] > healed + 50, "healing")
    load.stop()
    assert load.broken == []
    wait_until(lambda: counted(server, "/v1/encode") - before == load.answers, "their counting")
    assert "engine ended with -9 and is started again" in server.log.read_text()
    body = {"vocabulary": "kept", "text": HELLO["text"]}
    assert post(server, "/v1/encode", body).json()["ids"] == HELLO_IDS


@pytest.mark.slow
def test_small_requests_are_answered_while_the_engine_process_is_away(tmp_path):
    with server_process(tmp_path, {**SETTINGS, "WARPTOK_GRPC": "false"}) as server:
        small_requests_without_an_engine_process(server)


def small_requests_without_an_engine_process(server: Server) -> None:
    before, engine = counted(server, "/v1/encode"), processes(server)["engine"]
    load = Load(server)
    wait_until(lambda: server.log.read_text().count("encoded here from now on") >= 2, "load")
    with nothing_started_again(server):
        os.kill(engine, signal.SIGKILL)
        readyz = server.url + "/readyz"
        wait_until(lambda: not httpx.get(readyz, timeout=WAIT_S).is_success, "its end")
        answered = load.answers[200]
        wait_until(
            lambda: load.answers[200] > answered + 50, "an answer without the engine process"
        )
    server.wait_ready()
    load.stop()
    assert load.broken == []
    # Those on their way to the engine process just then, which is told now and then, are refused.
    assert load.answers[503] <= NUM_CLIENTS
    wait_until(lambda: counted(server, "/v1/encode") - before == load.answers, "their counting")


@pytest.mark.slow
def test_sigterm_under_load_loses_nothing_and_a_second_one_kills(tmp_path):
    settings = {**SETTINGS, "WARPTOK_GRPC": "false"}
    with server_process(tmp_path, settings, expect_exit=False) as server:
        load = Load(server)
        wait_until(lambda: load.answers[200] > 100, "load")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WAIT_S) == 0, server.log.read_text()
        load.stop()
        assert set(load.answers) <= {200, 503}
        # A connection that was closed between two requests, or not taken any more.
        ends = {"ConnectError", "RemoteProtocolError", "ReadError", "WriteError"}
        assert set(load.broken) <= ends
        assert "Traceback" not in server.log.read_text()
    settings |= {"WARPTOK_FRONTENDS": "1", "WARPTOK_PRELOAD": "none"}
    with server_process(tmp_path, settings, expect_exit=False) as server, half_request(server):
        server.process.send_signal(signal.SIGTERM)
        server.wait_draining()
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(AT_ONCE_S) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_what_cannot_start_ends_at_once_and_says_why():
    command = [sys.executable, "-m", "service", "serve", "--frontends", "1", "--port"]
    environment = service_environment({"WARPTOK_PRELOAD": "nothing", "WARPTOK_GRPC": "false"})
    named = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run([*command, "0"], timeout=WAIT_S, **named)
    assert (done.returncode, done.stdout) == (2, "")
    assert "warptok: WARPTOK_PRELOAD: no vocabulary has this name" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*command, str(port)], timeout=WAIT_S, **named)
    assert done.returncode == 2
    assert done.stderr.strip() == f"warptok: WARPTOK_PORT: 127.0.0.1:{port}: Address already in use"


@pytest.mark.slow
def test_no_process_outlives_its_supervisor(tmp_path):
    settings = {"WARPTOK_FRONTENDS": "1", "WARPTOK_PRELOAD": "none", "WARPTOK_GRPC": "false"}
    with server_process(tmp_path, settings, expect_exit=False) as server:
        children = processes(server).values()
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(map(is_running, children)), "the end of all processes")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class GrpcLoad:
    """Clients that send gRPC calls one after another, and note how each ended."""

    def __init__(self, port: int) -> None:
        self.ended: list[str] = []
        self.is_over = threading.Event()
        self.port = port
        self.threads = [threading.Thread(target=self._ask) for _ in range(NUM_CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _ask(self) -> None:
        request = pb.EncodeRequest(vocabulary="gpt2", text=HELLO["text"].encode())
        # Its own connection, with the library's own times between two attempts to connect.
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", options=options) as channel:
            call = channel.unary_unary(
                "/warptok.v1.Tokenizer/Encode",
                request_serializer=pb.EncodeRequest.SerializeToString,
                response_deserializer=pb.EncodeResponse.FromString,
            )
            while not self.is_over.wait(0.02):
                try:
                    call(request, timeout=WAIT_S)
                    self.ended.append("answered")
                except grpc.RpcError as error:
                    status = rpc_status.from_call(error)
                    refused = status is not None and b"RetryInfo" in status.SerializeToString()
                    self.ended.append("refused" if refused else error.code().name)

    def stop(self) -> list[str]:
        self.is_over.set()
        for thread in self.threads:
            thread.join(WAIT_S)
        return self.ended


@pytest.mark.slow
def test_grpc_calls_are_refused_until_the_next_engine_process_answers_on_the_same_port(server):
    port = int(re.search(r"gRPC on 127.0.0.1:(\d+)", server.log.read_text())[1])
    load = GrpcLoad(port)
    wait_until(lambda: load.ended.count("answered") > 50, "load")
    os.kill(processes(server)["engine"], signal.SIGKILL)
    wait_until(lambda: load.ended.count("refused") > 50, "refusals")
    server.wait_ready()
    # The supervisor lets go of the last calls when the next process is up, perhaps a moment later.
    wait_until(lambda: load.ended[-50:] == ["answered"] * 50, "healing")
    healed = len(load.ended)
    wait_until(lambda: len(load.ended) > healed + 50, "load")
    ended = load.stop()
    # Calls that the engine process had, and those sent before somebody listened again.
    assert set(ended) <= {"answered", "refused", "UNAVAILABLE"}
    assert set(ended[healed:]) == {"answered"}
    assert "gRPC calls were refused while the engine process was started" in server.log.read_text()
