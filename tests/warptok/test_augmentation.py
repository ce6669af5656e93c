"""Random changes to sequences: the same words and seeds give the same ids by every way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import warptok
from tests.clients.test_clients import grpc_address
from tests.support.data_files import ROOT
from tests.support.server_process import Server
from vocabularies.batch.batch import Batch
from vocabularies.sequences.augmentation import StreamAugmenter, augment
from warptok.clients import service_calls

pa = pytest.importorskip("pyarrow")
CHANGES = warptok.Augmentation(seed=2**64 - 1, crop_letters=9, substitution_rate=0.5, first_row=3)
TEXTS = ["ACGTACGTACGTNN", "", "GATTACA" * 5, "acgt", "ACGTTGCA" * 3] * 5
STRANDS = [True, False, False, True, False] * 5


@pytest.fixture(scope="module")
def service(server: Server) -> Server:
    server.wait_ready()
    return server


@pytest.fixture(scope="module")
def tok() -> warptok.Tokenizer:
    return warptok.load("hyenadna", device="cpu")


@pytest.fixture(scope="module")
def changed() -> list[str]:
    batch = Batch(TEXTS)
    data, offsets = augment(batch.data, batch.offsets, CHANGES)
    texts = [data[begin:end].tobytes().decode() for begin, end in pairwise(offsets)]
    assert texts != TEXTS
    return texts


@pytest.mark.parametrize("options", [{}, {"reverse_complement": STRANDS}, {"return_tokens": True}])
def test_every_tokenizer_and_client_makes_the_same_changes(
    service, tok, changed, monkeypatch, options
):
    monkeypatch.setattr(service_calls, "PART_ROWS", 7)  # Several requests.
    expected = tok.encode_batch(changed, **options)
    made = [tok.encode_batch(TEXTS, augmentation=CHANGES, **options)]
    made.append(tok.encode_batch(TEXTS, augmentation=asdict(CHANGES), **options))
    with warptok.Client(service.url, "hyenadna") as client:
        made.append(client.encode_batch(TEXTS, augmentation=CHANGES, **options))
        with monkeypatch.context() as patch:
            patch.setattr(service_calls, "find_spec", lambda name: None)  # By JSON.
            made.append(client.encode_batch(TEXTS, augmentation=CHANGES, **options))
    target = grpc_address(service)
    with warptok.GrpcClient(target, "hyenadna") as client:
        made.append(client.encode_batch(TEXTS, augmentation=CHANGES, **options))

    async def encode_all() -> None:
        async with (
            warptok.AsyncClient(service.url, "hyenadna") as by_http,
            warptok.AsyncGrpcClient(target, "hyenadna") as by_grpc,
        ):
            for client in (by_http, by_grpc):
                made.append(await client.encode_batch(TEXTS, augmentation=CHANGES, **options))

    asyncio.run(encode_all())
    assert len(made) == 7
    for batch in made:
        assert batch.to_list() == expected.to_list()
        assert batch.tokens == expected.tokens
        assert batch.engine == "cpu"
        assert 0 < batch.kernel_time < 60


def write_arrow(*batches: list[str]) -> bytes:
    """Write an Arrow stream of several record batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("text", pa.string())])) as writer:
        for texts in batches:
            writer.write_batch(pa.record_batch({"text": texts}))
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def test_the_bulk_routes_number_rows_through(service, tok, changed):
    query = {"vocabulary": "hyenadna", **asdict(CHANGES), "return_kernel_time": "true"}
    fasta = "".join(f">{row}\n{text}\n" for row, text in enumerate(TEXTS)).encode()
    for path, body, kind in (
        ("batch", write_arrow(TEXTS[:11], TEXTS[11:]), service_calls.ARROW),
        ("fasta", fasta, "text/plain"),
    ):
        answer = post(service, path, query, body, kind)
        reader = pa.ipc.open_stream(answer)
        ids = []
        for _ in range(2 if path == "batch" else 1):
            table, metadata = reader.read_next_batch_with_custom_metadata()
            ids += table.column("ids").to_pylist()
            assert 0 < float(metadata[b"warptok.kernel_time"]) < 60
            assert metadata[b"warptok.engine"] == b"cpu"
        assert ids == tok.encode_batch(changed).to_list()


def post(service: Server, path: str, query: dict[str, Any], body: bytes, kind: str) -> bytes:
    written = "&".join(f"{name}={value}" for name, value in query.items())
    url = f"{service.url}/v1/encode/{path}?{written}"
    request = urllib.request.Request(url, body, {"content-type": kind})
    with urllib.request.urlopen(request) as answer:
        data: bytes = answer.read()
        return data


@pytest.mark.parametrize(
    ("path", "query", "body", "where"),
    [
        ("fasta", {"crop_letters": 3}, b">a\nA\n", "/crop_letters"),
        ("fasta", {"seed": 1, "window": 4}, b">a\nA\n", "/seed"),
        ("fasta", {"seed": 1, "vocabulary": "gpt2"}, b">a\nA\n", "/seed"),
        ("fasta", {"seed": 2**64}, b">a\nA\n", "/seed"),
        ("batch", {"seed": 1}, write_arrow(["A", "C", "é"]), "row 2"),
        ("fasta", {"seed": 1, "first_row": 2**63 - 1, "substitution_rate": 2}, b"", "/substitut"),
    ],
)
def test_the_bulk_routes_refuse_what_has_no_meaning(service, path, query, body, where):
    with pytest.raises(urllib.error.HTTPError) as refused:
        kind = service_calls.ARROW if path == "batch" else "text/plain"
        post(service, path, {"vocabulary": "hyenadna", **query}, body, kind)
    assert refused.value.code == 422
    assert f'"where":"{where}' in refused.value.read().decode()


def test_the_command_line_makes_the_same_changes(tok, changed, tmp_path):
    file = tmp_path / "sequences.fa"
    file.write_text("".join(f">{row}\n{text}\n" for row, text in enumerate(TEXTS)))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "warptok", "encode", "-v", "hyenadna", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    words = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(CHANGES).items()]
    done = run(*words, str(file))
    assert done.returncode == 0, done.stderr
    made = [[*map(int, line.split())] for line in done.stdout.splitlines()]
    assert made == tok.encode_batch(changed).to_list()
    assert (
        "--crop-letters is only allowed together with --seed"
        in run("--crop-letters", "3", str(file)).stderr
    )


def test_wrong_changes_are_refused_before_anything_is_sent(tok):
    with warptok.Client("http://127.0.0.1:1", "hyenadna", retries=0) as client:
        for make in (tok, client):
            with pytest.raises(TypeError, match="unexpected keyword argument 'crop'"):
                make.encode_batch(TEXTS, augmentation={"seed": 1, "crop": 2})
            with pytest.raises(TypeError, match=r"warptok\.Augmentation\(seed="):
                make.encode_batch(TEXTS, augmentation=7)
            with pytest.raises(warptok.InvalidRequest, match="seed is -1"):
                make.encode_batch(TEXTS, augmentation={"seed": -1})
            with pytest.raises(warptok.InvalidRequest, match="changed sequences"):
                make.encode_batch(TEXTS, augmentation=CHANGES, return_offsets="bytes")
            with pytest.raises(TypeError, match=r"encode_batch\(\[text\], augmentation="):
                make.encode("ACGT", augmentation=CHANGES)
    with pytest.raises(warptok.InvalidRequest, match="not possible for a vocabulary of text"):
        warptok.load("gpt2", device="cpu").encode_batch(["a"], augmentation=CHANGES)
    with pytest.raises(warptok.InvalidRequest, match=r"ASCII letters \(row 1\)"):
        tok.encode_batch(["A", "é"], augmentation=CHANGES)


def test_rows_of_a_stream_are_numbered_through_and_others_bytes_left_out():
    data = np.frombuffer(b"xx" + b"ACGTACGT" * 8 + b"xx", np.uint8)
    offsets = np.arange(2, 67, 8)
    whole = StreamAugmenter(CHANGES).augment(Batch(data=data, offsets=offsets))
    augmenter = StreamAugmenter(CHANGES)
    batches = [Batch(data=data, offsets=offsets[begin : begin + 3]) for begin in range(0, 8, 2)]
    joined = np.concatenate([augmenter.augment(batch).data for batch in batches])
    assert joined.tolist() == whole.data.tolist()
