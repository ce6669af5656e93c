"""DNA in lower case: the option `uppercase` of every call, and the warning of unknown ids."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest

from service.apis.bulk import fasta_batches
from service.apis.bulk.arrow_reader import MEDIA_TYPE
from service.apis.grpc import conversions
from service.engines.cpu.engine import CpuEngine
from service.protos import warptok_pb2 as pb
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

ENGINE = CpuEngine()
# Vocabularies of which lower case is unknown, and the share of unknown ids in LOWER.
SHARES = {
    "hyenadna": 1.0,
    "ntv3": 1.0,
    "nt_v1": 1.0,
    "nt_v2": 1.0,
    "dnabert1_6mer": 1.0,
    "dnabert2": 1.0,
    "gena_lm_t2t_32k": 1.0,
}
LOWER = "acgtacgtaacgtacgtn"
MASKED = ("ACGTACGTAACGTACG" * 3 + "acgtacgtaacgtacg" * 3 + "n") * 8
OCTETS = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}


def ids_of(name, text):
    return ENGINE.encode(load(name), Batch([text])).ids.tolist()


def fasta_of(*sequences):
    return "".join(f">{row}\n{sequence}\n" for row, sequence in enumerate(sequences))


@pytest.mark.parametrize("name", SHARES)
def test_json_calls(name):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            expected = ids_of(name, LOWER.upper())
            body = {"vocabulary": name, "text": LOWER, "uppercase": True}
            answer = (await client.post("/v1/encode", json=body)).json()
            assert (answer["ids"], "unknown_share" in answer) == (expected, False)
            texts = {"vocabulary": name, "texts": [LOWER, LOWER]}
            mixed = texts | {"uppercase": [False, True]}
            answer = (await client.post("/v1/encode/batch", json=mixed)).json()
            assert answer["ids"] == [ids_of(name, LOWER), expected]
            counted = (await client.post("/v1/count", json=mixed)).json()
            assert counted["num_tokens"] == answer["num_tokens"]
            for more in ({}, {"return_offsets": "bytes"}):
                one = {"vocabulary": name, "text": LOWER} | more
                answer = (await client.post("/v1/encode", json=one)).json()
                assert answer["unknown_share"] == SHARES[name]
                answer = (await client.post("/v1/encode/batch", json=texts | more)).json()
                assert answer["unknown_share"] == SHARES[name]

    run(scenario)


def test_offsets_are_of_the_text_as_it_was_sent():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = {"vocabulary": "hyenadna", "text": "éacg", "uppercase": True}
            options = {"return_offsets": "codepoints", "return_tokens": True}
            answer = (await client.post("/v1/encode", json=body | options)).json()
            assert answer["tokens"] == ["[UNK]", "A", "C", "G", "[SEP]"]
            assert answer["offsets"][:4] == [[0, 1], [1, 2], [2, 3], [3, 4]]

    run(scenario)


@pytest.mark.parametrize("name", ["gpt2", "mtdna6", "caduceus", "evo_bytes", "gpn", "hyenadna"])
def test_nothing_warns_where_nothing_is_unknown(name):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            text = LOWER if name != "hyenadna" else LOWER.upper() + LOWER[:3]
            answer = await client.post("/v1/encode", json={"vocabulary": name, "text": text})
            assert "unknown_share" not in answer.json()
            plain = await client.post(
                "/v1/encode", params={"vocabulary": name}, content=text, headers=OCTETS
            )
            assert "x-warptok-warning" not in plain.headers

    run(scenario)


@pytest.mark.parametrize("name", ["hyenadna", "dnabert2", "nt_v2"])
def test_plain_bodies(name):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            query = {"vocabulary": name}
            answer = await client.post("/v1/encode", params=query, content=LOWER, headers=OCTETS)
            assert answer.headers["x-warptok-warning"] == "unknown-ids"
            assert answer.headers["x-warptok-unknown-share"] == "1.0"
            query["uppercase"] = "true"
            answer = await client.post("/v1/encode", params=query, content=LOWER, headers=OCTETS)
            assert "x-warptok-warning" not in answer.headers
            assert np.frombuffer(answer.content, "<i4").tolist() == ids_of(name, LOWER.upper())

    run(scenario)


def test_arrow():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            table = pa.record_batch({"text": [LOWER, LOWER.upper()]})
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_batch(table)
            for uppercase in ("false", "true"):
                answer = await client.post(
                    "/v1/encode/batch",
                    params={"vocabulary": "dnabert2", "uppercase": uppercase},
                    content=sink.getvalue(),
                    headers={"content-type": MEDIA_TYPE},
                )
                rows = pa.ipc.open_stream(answer.content).read_all().column("ids").to_pylist()
                if uppercase == "true":
                    assert rows == [ids_of("dnabert2", LOWER.upper())] * 2
                    assert "x-warptok-warning" not in answer.headers
                else:
                    assert answer.headers["x-warptok-warning"] == "unknown-ids"
                    assert 0.5 < float(answer.headers["x-warptok-unknown-share"]) < 1

    run(scenario)


@pytest.mark.parametrize("name", ["hyenadna", "nt_v2", "dnabert2", "dnabert1_6mer"])
@pytest.mark.parametrize("query", [{}, {"window": 7, "stride": 3}])
def test_fasta_and_fastq(name, query, monkeypatch):
    """A long record is split where upper case letters allow it."""
    monkeypatch.setattr(fasta_batches, "PART_BYTES", 100)

    async def scenario():
        async with serving(ENGINE) as (client, _):
            wanted = fasta_of(MASKED.upper(), LOWER.upper())
            fastq = f"@0\n{MASKED}\n+\n{'I' * len(MASKED)}\n@1\n{LOWER}\n+\n{'I' * len(LOWER)}\n"
            answers = []
            for content, options in (
                (wanted, {}),
                (fasta_of(MASKED, LOWER), {"uppercase": "true"}),
                (fastq, {"uppercase": "true"}),
            ):
                answer = await client.post(
                    "/v1/encode/fasta",
                    params={"vocabulary": name} | query | options,
                    content=content,
                )
                assert "x-warptok-warning" not in answer.headers
                answers.append(pa.ipc.open_stream(answer.content).read_all().to_pylist())
            assert answers[0] == answers[1] == answers[2]
            answer = await client.post(
                "/v1/encode/fasta", params={"vocabulary": name} | query, content=fasta_of(LOWER)
            )
            assert answer.headers["x-warptok-warning"] == "unknown-ids"

    run(scenario)


def test_windows():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = {"vocabulary": "dnabert1_6mer", "window": 4, "stride": 2}
            answers = [
                (await client.post("/v1/windows", json=body | more)).json()
                for more in (
                    {"sequence": LOWER.upper()},
                    {"sequence": LOWER, "uppercase": True},
                    {"sequence": LOWER},
                )
            ]
            assert answers[0] == answers[1]
            assert answers[2]["unknown_share"] == 1.0

    run(scenario)


def test_the_open_inference_protocol():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [LOWER]}
            body = {"inputs": [tensor], "parameters": {"uppercase": True}}
            answer = (await client.post("/v2/models/hyenadna/infer", json=body)).json()
            assert answer["outputs"][0]["data"] == ids_of("hyenadna", LOWER.upper())

    run(scenario)


def test_grpc_reads_the_option():
    assert conversions.read_options(pb.Options(uppercase=True)).uppercase
    assert not conversions.read_options(pb.Options()).uppercase
