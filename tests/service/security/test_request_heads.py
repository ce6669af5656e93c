"""The names and origins that a service accepts; its parser is never less strict than h11."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from service.core.settings import Settings
from service.security.request_heads import HeadRules
from tests.service.http.connection.test_protocol import answer, listening, request, text_body
from tests.support.app_client import serving
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run

LOCAL = ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "a.localhost", "127.9.9.9")
FOREIGN = ("evil.example", "evil.example:8000", "10.0.0.1", "localhost.evil.example", "[2001::1]")
ANY = "any"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def code(rules: HeadRules, *hosts: str, version: str = "1.1", url: str = "/v1/encode") -> str:
    fields = [(b"host", host.encode("latin-1")) for host in hosts]
    fault = rules.find_fault(version, url.encode(), fields)
    return fault.code if fault is not None else ""


def test_on_loopback_without_keys_only_its_names_are_answered():
    rules = HeadRules(Settings())
    assert [code(rules, host) for host in LOCAL] == [""] * len(LOCAL)
    assert {code(rules, host) for host in FOREIGN} == {"host_not_allowed"}
    assert {code(rules, host) for host in FOREIGN} == {"host_not_allowed"}
    assert code(rules, "10.0.0.1:8000", url="/readyz") == ""
    assert code(rules, "10.0.0.1:8000", url="/metrics") == "host_not_allowed"
    assert code(rules, "localhost", url="http://evil.example/v1/encode") == "host_not_allowed"
    assert code(rules, "localhost", url="ftp://evil.example/v1/encode") == "host_not_allowed"
    assert code(rules, "localhost", url="http://localhost:8000/v1/encode") == ""


@pytest.mark.parametrize(
    "settings",
    [{"host": "0.0.0.0"}, {"api_keys_file": Path("keys.json")}, {"allowed_hosts": ANY}],
)
def test_otherwise_any_name_is_answered(settings):
    rules = HeadRules(Settings(**settings))
    assert {code(rules, host) for host in (*LOCAL, *FOREIGN)} == {""}


def test_a_list_of_names_holds_wherever_the_service_listens():
    rules = HeadRules(Settings(host="0.0.0.0", allowed_hosts="tok.example, [2001:db8::1]"))
    assert code(rules, "tok.example") == code(rules, "TOK.example.:80") == ""
    assert code(rules, "[2001:db8::1]:8000") == ""
    assert code(rules, "localhost") == "host_not_allowed"


@pytest.mark.parametrize(
    ("hosts", "version"),
    [
        ((), "1.1"),
        (("localhost", "localhost"), "1.1"),
        (("localhost", "evil.example"), "1.0"),
        (("",), "1.1"),
        (("a b",), "1.1"),
        (("localhost:http",), "1.1"),
        (("user@localhost",), "1.1"),
        (("localhost/path",), "1.1"),
        (("[::1",), "1.1"),
        (("\xe4",), "1.1"),
        (("localhost,evil.example",), "0.9"),
        (("localhost",), "2.0"),
    ],
)
def test_a_malformed_head_is_refused(hosts, version):
    assert code(HeadRules(Settings(allowed_hosts=ANY)), *hosts, version=version) == "bad_head"


def test_http_1_0_needs_no_host():
    assert code(HeadRules(Settings()), version="1.0") == ""


ORIGIN_CASES = [
    (None, 204),
    ("http://localhost:8000", 204),
    ("https://LOCALHOST:8000", 204),
    ("http://friend.example", 204),
    ("http://localhost:9000", 403),
    ("http://evil.example", 403),
    ("null", 403),
]


@pytest.mark.parametrize(("origin", "status"), ORIGIN_CASES)
def test_pages_of_other_origins_change_nothing(origin, status):
    async def scenario():
        async with serving(FakeEngine(), allowed_origins="http://friend.example") as (client, _):
            headers = {"host": "localhost:8000"} | ({"origin": origin} if origin else {})
            content = json.dumps({"prompt": "hello"}).encode()
            encoded = await client.post(
                "/v1/encode", json=json.loads(text_body("a")), headers=headers
            )
            assert encoded.status_code == 200
            listed = await client.get("/v1/vocabularies", headers=headers)
            assert listed.status_code == 200
            for method, path in (
                ("PUT", "/v1/vocabularies/own"),
                ("DELETE", "/v1/vocabularies/own"),
                ("POST", "/v1/vocabularies/own/verify"),
                ("POST", "/v2/repository/models/own/unload"),
                ("POST", "/v1/training-jobs"),
            ):
                got = await client.request(method, path, content=content, headers=headers)
                is_refused = got.status_code == 403
                assert is_refused == (status == 403), path
                if is_refused and path.startswith("/v1/"):
                    assert got.json()["code"] == "origin_not_allowed"

    run(scenario)


@pytest.mark.parametrize("path", ["/v1/vocabularies", "/livez", "/v1/models/evo_bytes"])
def test_both_forms_of_a_path_are_answered_without_a_redirect(path):
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            plain, with_slash = await client.get(path), await client.get(f"{path}/")
            assert plain.status_code == with_slash.status_code == 200
            assert plain.content == with_slash.content
            assert (await client.get(f"{path}//")).status_code == 404
            encoded = await client.post("/v1/encode/", json=json.loads(text_body("a")))
            assert encoded.status_code == 200

    run(scenario)


def test_a_name_that_is_not_allowed_is_refused_on_every_way():
    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for host, status in (("localhost", 200), ("evil.example", 403), ("localhost", 200)):
                for path in ("/v1/encode", "/v1/encode/"):
                    sent = request(text_body("a"), path).replace(
                        b"Host: localhost", f"Host: {host}".encode()
                    )
                    for _ in range(3):
                        writer.write(sent)
                        got, _, body = await answer(reader)
                        assert got == status
                        if status == 403:
                            assert json.loads(body)["code"] == "host_not_allowed"
            rejected = app.service.metrics.counts()["warptok_requests_rejected_total"]
            assert rejected["host_not_allowed",] == 6
            writer.close()

    run(scenario)


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = text_body("a")
SIZE = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
CASES: dict[str, bytes] = {
    "plain": GET + b"\r\n",
    "body": POST + SIZE + b"\r\n" + BODY,
    "chunks": POST + CHUNKED,
    "no version": b"GET /livez\r\n\r\n",
    "version 0.9": b"GET /livez HTTP/0.9\r\nHost: localhost\r\n\r\n",
    "version 1.2": GET.replace(b"1.1", b"1.2") + b"\r\n",
    "version 2.0": GET.replace(b"1.1", b"2.0") + b"\r\n",
    "version 1.": GET.replace(b"1.1", b"1.") + b"\r\n",
    "small http": GET.replace(b"HTTP", b"http") + b"\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no Host": b"GET /livez HTTP/1.1\r\n\r\n",
    "no Host in 1.0": b"GET /livez HTTP/1.0\r\n\r\n",
    "two Hosts": GET + b"Host: localhost\r\n\r\n",
    "two Hosts in 1.0": GET.replace(b"1.1", b"1.0") + b"Host: localhost\r\n\r\n",
    "blank before colon": GET + b"Other : a\r\n\r\n",
    "blank before name": GET + b" Other: a\r\n\r\n",
    "folded field": GET + b"Other: a\r\n b\r\n\r\n",
    "no colon": GET + b"Other\r\n\r\n",
    "empty name": GET + b": a\r\n\r\n",
    "name with a brace": GET + b"Ot{er: a\r\n\r\n",
    "name with a letter beyond ASCII": GET + b"Oth\xe9r: a\r\n\r\n",
    "NUL in a value": GET + b"Other: a\x00b\r\n\r\n",
    "control character in a value": GET + b"Other: a\x01b\r\n\r\n",
    "vertical tab in a value": GET + b"Other: a\x0bb\r\n\r\n",
    "CR in a value": GET + b"Other: a\rb\r\n\r\n",
    "LF alone": GET.replace(b"\r\n", b"\n") + b"\n",
    "CR alone": GET.replace(b"\r\n", b"\r") + b"\r",
    "two blanks in the first line": GET.replace(b"GET /", b"GET  /") + b"\r\n",
    "tab in the first line": GET.replace(b"GET /", b"GET\t/") + b"\r\n",
    "blank behind the version": GET.replace(b"1.1\r", b"1.1 \r") + b"\r\n",
    "blank in the target": GET.replace(b"/livez", b"/li vez") + b"\r\n",
    "letter beyond ASCII in the target": GET.replace(b"/livez", b"/livez\xe9") + b"\r\n",
    "control character in the target": GET.replace(b"/livez", b"/livez\x01") + b"\r\n",
    "lines before the first": b"\r\n\r\n" + GET + b"\r\n",
    "method with a colon": GET.replace(b"GET", b"G:T") + b"\r\n",
    "small method": GET.replace(b"GET", b"get") + b"\r\n",
    "length with a sign": POST + SIZE.replace(b": ", b": +") + b"\r\n" + BODY,
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "length in hexadecimal": POST + b"Content-Length: 0x10\r\n\r\n" + BODY,
    "empty length": POST + b"Content-Length: \r\n\r\n" + BODY,
    "length with 30 digits": POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + BODY,
    "two lengths": POST + SIZE + b"Content-Length: 3\r\n\r\n" + BODY,
    "a list of lengths": POST + b"Content-Length: 3, 4\r\n\r\n" + BODY,
    "length and chunks": POST + SIZE + CHUNKED,
    "gzip, chunked": POST + CHUNKED.replace(b"chunked", b"gzip, chunked"),
    "chunked, gzip": POST + CHUNKED.replace(b"chunked", b"chunked, gzip"),
    "gzip": POST + CHUNKED.replace(b"chunked", b"gzip"),
    "identity": POST + CHUNKED.replace(b"chunked", b"identity"),
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\n" + CHUNKED,
    "chunked with a tab": POST + CHUNKED.replace(b" chunked", b"\x0bchunked"),
    "chunks in 1.0": POST.replace(b"1.1", b"1.0") + CHUNKED,
    "chunk size with a sign": POST + CHUNKED.replace(b"\r\n\r\n", b"\r\n\r\n+", 1),
    "chunk size 0x": POST + CHUNKED.replace(b"\r\n\r\n", b"\r\n\r\n0x", 1),
    "chunk without its end": POST + CHUNKED.replace(b"}\r\n", b"}xx"),
    "chunk size with a blank": POST + CHUNKED.replace(b"\r\n\r\n", b"\r\n\r\n ", 1),
    "LF behind a chunk size": POST + CHUNKED.replace(b'\r\n{"', b'\n{"', 1),
    "bad trailer": POST + CHUNKED[:-2] + b"Bad Trailer\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}

LENIENT = {"two blanks in the first line", "lines before the first"}
"""What RFC 9112 lets a server read (sections 3 and 2.2); neither changes where a request ends."""


def h11_accepts(sent: bytes) -> bool:
    """Return whether h11 reads a whole request."""
    h11 = pytest.importorskip("h11")
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(sent)
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.EndOfMessage):
                return True
            if event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                return False
    except h11.RemoteProtocolError:
        return False


async def statuses(port: int, sent: bytes) -> list[int]:
    """Send a request and read until the connection ends; return the statuses of all answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    read = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(1.0):
            while data := await reader.read(1 << 16):
                read += data
                if b"200 OK" in read:
                    break
    writer.close()
    return [int(status) for status in STATUS.findall(read)]


@pytest.fixture(scope="module")
def answered() -> dict[str, list[int]]:
    """The statuses of the answers to each case."""

    async def scenario():
        got: dict[str, list[int]] = {}
        settings: dict[str, Any] = {"head_timeout_s": 0.3, "stream_idle_timeout_s": 0.3}
        async with listening(FakeEngine(), **settings) as (_, port):
            for name, sent in CASES.items():
                got[name] = await statuses(port, sent)
        return got

    return run(scenario)


@pytest.mark.parametrize("name", CASES)
def test_what_h11_refuses_is_refused(answered, name):
    if not h11_accepts(CASES[name]) and name not in LENIENT:
        assert 200 not in answered[name]
    assert len(answered[name]) <= 1


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("plain", 200),
        ("body", 200),
        ("chunks", 200),
        ("no Host in 1.0", 200),
        ("no version", 400),
        ("version 0.9", 400),
        ("version 2.0", 400),
        ("no Host", 400),
        ("two Hosts", 400),
        ("gzip, chunked", 501),
        ("chunks in 1.0", 400),
        ("length and chunks", 400),
    ],
)
def test_each_has_its_status(answered, name, status):
    assert answered[name] == [status]
