"""The service as users meet it: a process, a socket, real vocabularies, careless clients."""

from __future__ import annotations

import concurrent.futures
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.data_files import data_bytes, expected, ids_digest, records
from tests.support.server_process import AT_ONCE_S, Server, half_request, server_process
from tests.support.waiting import GIVEN_UP_S

LLM = ("gpt2", "cl100k_base", "o200k_base")
TEXTS = ("text/blns.txt", "text/udhr_17_languages.txt", "text/emoji_test_15.0.txt")
DNA = {
    "dnabert1_3mer": "dnabert1_3mer",
    "dnabert1_6mer": "dnabert1_6mer",
    "dnabert2": "dnabert2",
    "gena_lm_t2t_32k": "gena_lm_t2t_32k",
    "gpn": "gpn",
    "hyenadna": "hyenadna",
    "caduceus": "caduceus",
    "evo_bytes": "evo_bytes",
    "nt_v1": "nt_v1",
    "nt_v2": "nt_v2",
    "mtdna6": "mtdna6_linear",
}
GENOMES = (
    "dna/lambda_NC_001416.fa",
    "dna/human_hg38_softmasked_chr13_chr4.fa",
    "dna/mtdna_rCRS_NC_012920.1.fa",
    "dna/reads_lambda_with_N.fastq.gz",
    "dna/mirgenedb_2.1_ALL-mat.fa",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """One server for all tests here; vocabularies load on first use."""
    folder = tmp_path_factory.mktemp("server")
    settings = {"WARPTOK_PRELOAD": "none", "WARPTOK_STORE_DIR": str(folder / "store")}
    with server_process(folder, settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=GIVEN_UP_S) as made:
        yield made


def encode_all(client: httpx.Client, vocabulary: str, texts: list[str], **options: Any) -> list:
    body = {"vocabulary": vocabulary, "texts": texts, **options}
    response = client.post("/v1/encode/batch", json=body)
    assert response.status_code == 200, response.text[:500]
    answer = response.json()
    assert "errors" not in answer, answer["errors"][:3]
    assert answer["engine"] == "cpu"
    assert answer["num_tokens"] == [len(row) for row in answer["ids"]]
    return answer["ids"]


def joined_digest(rows: list[list[int]]) -> str:
    return ids_digest([i for row in rows for i in row])


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("vocabulary", LLM)
def test_texts_get_the_reference_ids_over_http(client, vocabulary, name):
    text = data_bytes(name).decode()
    body = {"vocabulary": vocabulary, "text": text, "special": "plain"}
    answer = client.post("/v1/encode", json=body).json()
    wanted = expected()[vocabulary][name]
    assert (answer["num_tokens"], ids_digest(answer["ids"])) == tuple(wanted.values())
    decoded = client.post("/v1/decode", json={"vocabulary": vocabulary, "ids": answer["ids"]})
    assert decoded.json()["text"] == text


@pytest.mark.parametrize("name", GENOMES)
@pytest.mark.parametrize("vocabulary", DNA)
def test_genomes_get_the_reference_ids_over_http(client, vocabulary, name):
    wanted = expected().get(DNA[vocabulary], {}).get(name)
    if wanted is None:
        pytest.skip("no expected ids for this pair")
    rows = encode_all(client, vocabulary, records(name))
    assert joined_digest(rows) == wanted["sha256"]
    counts = client.post("/v1/count", json={"vocabulary": vocabulary, "texts": records(name)})
    assert counts.json()["num_tokens"] == [len(row) for row in rows]


def test_circular_genomes_get_the_reference_ids_over_http(client):
    name = "dna/mtdna_rCRS_NC_012920.1.fa"
    rows = encode_all(client, "mtdna6", records(name), circular=True)
    assert joined_digest(rows) == expected()["mtdna6_circular"][name]["sha256"]


def test_windows_of_a_mitochondrial_genome_with_positions_and_a_channel(client):
    (sequence,) = records("dna/mtdna_rCRS_NC_012920.1.fa")
    size = len(sequence)
    channel = [i / size for i in range(size)]
    body = {
        "vocabulary": "mtdna6",
        "sequence": sequence,
        "window": 512,
        "stride": 256,
        "circular": True,
        "channel": channel,
    }
    answer = client.post("/v1/windows", json=body).json()
    (ids,) = encode_all(client, "mtdna6", [sequence], circular=True)
    assert len(answer["input_ids"]) == len(answer["starts"]) == 65
    for window, start in enumerate(answer["starts"]):
        places = [(start + i) % size for i in range(512)]
        assert start == 256 * window
        assert answer["position_ids"][window] == places
        assert answer["input_ids"][window] == [ids[place] for place in places]
        assert answer["attention_mask"][window] == [1] * 512
        assert answer["het_values"][window] == pytest.approx([channel[p] for p in places], abs=1e-6)
    linear = client.post("/v1/windows", json=body | {"circular": False, "add_cls": True}).json()
    assert linear["num_tokens"] == size - 5
    assert all(row[0] == 1 and len(row) == 513 for row in linear["input_ids"])


UPLOADS = [
    ("llama3", "vocab/llama3/tokenizer.json.xz", ""),
    ("tekken", "vocab/mistral/tekken_240911.tiktoken", "?pretokenizer=tekken&id_offset=1000"),
    ("qwen", "vocab/qwen/qwen.tiktoken", ""),
]


@pytest.mark.parametrize(("name", "file", "query"), UPLOADS)
@pytest.mark.slow
def test_an_uploaded_vocabulary_gives_the_reference_ids_over_http(client, name, file, query):
    response = client.put(f"/v1/vocabularies/{name}{query}", content=data_bytes(file))
    assert response.status_code == 201, response.text
    report = response.json()
    assert (report["self_test"]["num_different"], report["fallback_reason"]) == (0, "")
    for text_name in ("text/blns.txt", "text/runs_and_random.txt"):
        text = data_bytes(text_name).decode()
        body = {"vocabulary": name, "text": text, "add_special_tokens": False, "special": "plain"}
        answer = client.post("/v1/encode", json=body).json()
        assert ids_digest(answer["ids"]) == expected()[name][text_name]["sha256"]
    assert client.delete(f"/v1/vocabularies/{name}").status_code == 204


def raw(server: Server, request: bytes) -> bytes:
    """The head of what a socket answers to bytes as they are."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), GIVEN_UP_S) as connection:
        connection.sendall(request)
        while b"\r\n\r\n" not in answer and (piece := connection.recv(65536)):
            answer += piece
    return answer


def http_request(path: str, body: bytes, length: int | None = None) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\n"
    head += f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    return head.encode() + body


CARELESS = [
    ({"vocabulary": "gpt2", "text": ""}, 200),
    ({"vocabulary": "gpt3", "text": "x"}, 404),
    ({"vocabulary": "gpt2", "text": None}, 422),
    ({"vocabulary": "gpt2", "texts": ["x"]}, 422),
    ({"text": "x"}, 422),
    ([], 422),
    ("gpt2", 422),
    ({"vocabulary": "mtdna6", "text": "ACG", "circular": True}, 422),
    ({"vocabulary": "gpt2", "text": "x", "circular": True}, 422),
    ({"vocabulary": "gpt2", "text": "é", "reverse_complement": True}, 422),
    ({"vocabulary": "gpt2", "text": "a <|endoftext|>", "special": "refuse"}, 422),
    ({"vocabulary": "dnabert2", "text": "ACGT", "max_length": 1}, 422),
]


@pytest.mark.parametrize(("body", "status"), CARELESS)
def test_a_careless_body_gets_a_clear_answer(client, body, status):
    response = client.post("/v1/encode", json=body)
    assert response.status_code == status, response.text
    if status != 200:
        assert response.json()["detail"]
        assert response.json()["where"]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (http_request("/v1/encode", b'{"vocabulary":"gpt2","text":"\xff\xfe"}'), b"400"),
        (http_request("/v1/encode", b'{"vocabulary":"gpt2","text":"\\ud800"}'), b"400"),
        (http_request("/v1/encode", b""), b"400"),
        (http_request("/v1/encode", b"[" * 100_000), b"4"),
        (http_request("/v1/encode", b"", length=100_000_000), b"413"),
        (http_request("/v1/decode", b'{"vocabulary":"gpt2","ids":[50257]}'), b"422"),
        (http_request("/v1/decode", b'{"vocabulary":"gpt2","ids":[-1]}'), b"422"),
        (b"POST /v1/encode HTTP/1.1\r\n\r\n", b"4"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
    ],
)
def test_bytes_that_no_client_library_sends_are_refused(server, client, request_bytes, status):
    answer = raw(server, request_bytes)
    assert answer.split(b" ", 2)[1].startswith(status), answer[:200]
    assert client.get("/livez").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/livez", "/readyz", "/metrics", "/health", "/ping", "/v2/health/live", "/v2/health/ready"],
)
def test_probes_may_ask_for_the_head_alone(server, client, path):
    head, whole = client.head(path), client.get(path)
    assert head.status_code == whole.status_code == 200
    assert head.content == b""
    assert head.headers["content-type" if whole.content else "content-length"]
    answers = raw(
        server, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    assert answers.endswith(b"\r\n\r\n") and answers.count(b"HTTP/1.1 200") == 1


def test_a_body_of_100_mb_is_refused_without_being_read_whole(server, client):
    def chunks() -> Iterator[bytes]:
        yield b'{"vocabulary":"gpt2","text":"'
        for _ in range(100):
            yield b"a" * 1_000_000

    try:
        response = client.post(
            "/v1/encode", content=chunks(), headers={"content-type": "application/json"}
        )
        assert (response.status_code, response.json()["code"]) == (413, "too_large")
        assert "max_body_bytes" in response.json()["detail"]
    except httpx.WriteError:
        pass  # The connection was closed while we were still sending: refused as well.
    assert client.get("/livez").status_code == 200


def test_many_tiny_texts_are_answered_and_a_million_refused_by_name(client):
    texts = [chr(97 + i % 26) for i in range(65_536)]
    rows = encode_all(client, "gpt2", texts)
    assert rows[:3] == [[64], [65], [66]]
    assert len(rows) == 65_536
    response = client.post("/v1/count", json={"vocabulary": "gpt2", "texts": [""] * 1_000_000})
    assert (response.status_code, response.json()["where"]) == (413, "/texts")
    assert "max_texts" in response.json()["detail"]


def test_clients_that_hang_up_halfway_leave_the_service_well(server, client):
    port = int(server.url.rsplit(":", 1)[1])
    for cut in (10, 60, 140):
        request = http_request("/v1/encode", b'{"vocabulary":"gpt2","text":"hello"}')[:cut]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request)
    for _ in range(20):
        request = http_request(
            "/v1/encode", json.dumps({"vocabulary": "gpt2", "text": "x" * 10**6}).encode()
        )
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request)
    body = {"vocabulary": "gpt2", "text": "Hello, world!"}
    assert client.post("/v1/encode", json=body).json()["ids"] == [15496, 11, 995, 0]


def test_a_truncated_tokenizer_json_is_refused_with_its_place(client):
    whole = client.get("/v1/vocabularies/dnabert2?format=tokenizer.json").content
    response = client.put("/v1/vocabularies/broken", content=whole[: len(whole) // 2])
    assert (response.status_code, response.json()["code"]) == (422, "vocabulary_invalid")
    assert "line" in response.json()["where"]
    assert client.get("/v1/vocabularies/broken").status_code == 404


def test_concurrent_clients_with_mixed_vocabularies_each_get_their_own_ids(client, server):
    texts = [f"number {i}: {'ACGT' * (i % 7)} naïve ✓" for i in range(200)]
    wanted = {name: encode_all(client, name, texts) for name in (*LLM, "dnabert2", "nt_v2")}

    def ask(number: int) -> bool:
        name = list(wanted)[number % len(wanted)]
        row = number * 31 % len(texts)
        body = {"vocabulary": name, "text": texts[row]}
        return client.post("/v1/encode", json=body).json()["ids"] == wanted[name][row]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(1500)))


def test_a_chat_starts_its_process_without_a_line_in_the_log(client, server):
    document = client.get("/v1/vocabularies/gpn?format=tokenizer.json").content
    config = json.dumps({"chat_template": "{{ messages[0]['content'] }}"}).encode()
    files = {"a": ("tokenizer.json", document), "b": ("tokenizer_config.json", config)}
    assert client.put("/v1/vocabularies/chat", files=files).status_code == 201
    before = server.log.read_text()
    body = {"model": "chat", "messages": [{"role": "user", "content": "ACGT"}]}
    assert client.post("/tokenize", json=body).json()["count"] == 4
    assert server.log.read_text() == before


def accepted(server: Server) -> float:
    """Return the number of work items that the service has accepted so far."""
    text = httpx.get(server.url + "/metrics", timeout=GIVEN_UP_S).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return sum(s.value for s in families["warptok_work_accepted"].samples if "_total" in s.name)


def test_sigterm_finishes_what_was_accepted_and_exits_with_0(tmp_path):
    with server_process(tmp_path, {"WARPTOK_PRELOAD": "dnabert2"}, expect_exit=False) as server:
        sequence = "ACGTTGCA" * 100_000
        answers: list[int] = []

        def ask() -> None:
            body = {"vocabulary": "dnabert2", "text": sequence}
            answers.append(
                httpx.post(server.url + "/v1/encode", json=body, timeout=GIVEN_UP_S).status_code
            )

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        while accepted(server) < len(threads):
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert server.process.wait(180) == 0, server.log.read_text()
        assert answers == [200] * 4


def test_a_misspelt_setting_stops_the_start_with_the_near_name(tmp_path):
    with pytest.raises(AssertionError, match="WARPTOK_PRELOD is not a setting; did you mean"):
        with server_process(tmp_path, {"WARPTOK_PRELOD": "none"}):
            pass


def test_a_second_signal_ends_the_service_at_once(tmp_path):
    settings = {"WARPTOK_PRELOAD": "none"}
    with server_process(tmp_path, settings, expect_exit=False) as server, half_request(server):
        server.process.send_signal(signal.SIGTERM)
        server.wait_draining()
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(AT_ONCE_S) == 128 + signal.SIGTERM
        assert "a second signal" in server.log.read_text()
