"""FASTA and FASTQ streams: the ids of the JSON call, windows over them, every refusal."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.apis.bulk.fasta_batches import RecordNames
from service.apis.bulk.window_writer import WindowColumns, WindowMessages
from service.batching.work import Result
from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.builtin import load
from vocabularies.sequences.window_layout import WindowLayout

ENGINE = CpuEngine()
RECORDS = {"one": "ACGTN" * 40, "two": "", "three": "GATTACAacgt"}
FASTA = "".join(
    f">{name} described\n" + "".join(f"{text[i : i + 60]}\n" for i in range(0, len(text), 60))
    for name, text in RECORDS.items()
)
FASTQ = "".join(f"@{name}\n{text}\n+\n{'I' * len(text)}\n" for name, text in RECORDS.items())


async def post(client, content, headers=None, **query):
    query = {"vocabulary": "hyenadna"} | query
    data = content.encode() if isinstance(content, str) else content
    return await client.post("/v1/encode/fasta", params=query, content=data, headers=headers)


def rows(answer):
    assert answer.status_code == 200, answer.text
    return pa.ipc.open_stream(answer.content).read_all().to_pylist()


@pytest.mark.parametrize("content", [FASTA, FASTQ, FASTA.replace("\n", "\r\n")])
@pytest.mark.parametrize("name", ["hyenadna", "dnabert2", "nt_v2", "mtdna6"])
def test_each_record_has_the_ids_of_the_json_call(content, name):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            expected = ENGINE.encode(load(name), Batch([*RECORDS.values()]))
            got = rows(await post(client, content, vocabulary=name))
            for row, (record, found) in enumerate(zip(RECORDS, got, strict=True)):
                assert found["name"] == record
                if row in expected.errors:
                    assert found["ids"] is None
                    assert expected.errors[row].code in found["error"]
                else:
                    assert found["ids"] == expected.row(row).tolist()
                    assert found["error"] is None

    run(scenario)


def test_a_packed_file_and_narrow_ids():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = gzip.compress(FASTA[:50].encode()) + gzip.compress(FASTA[50:].encode())
            answer = await post(client, body, {"content-encoding": "gzip"}, dtype="uint8")
            table = pa.ipc.open_stream(answer.content).read_all()
            assert table.schema.field("ids").type == pa.list_(pa.uint8())
            assert [len(ids) for ids in table.column("ids").to_pylist()] == [201, 1, 12]

    run(scenario)


@pytest.mark.parametrize(
    "preamble", [b"\n\r\n", b";a comment\n", b" \n" * 3000, b";" + b"x" * 9000 + b"\n;ACGT\n\n"]
)
def test_blank_lines_and_comments_before_fasta_are_skipped(preamble):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            assert rows(await post(client, preamble + FASTA.encode())) == rows(
                await post(client, FASTA)
            )
            fastq = await post(client, preamble + FASTQ.encode())
            assert (fastq.status_code, fastq.json()["where"]) == (400, "line 1")

    run(scenario)


def test_a_body_in_another_encoding_is_refused_by_its_name():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            bodies = {
                "byte-order mark": b"\xef\xbb\xbf" + FASTA.encode(),
                "UTF-16": FASTA.encode("utf-16"),
                "in UTF-16": FASTA.encode("utf-16-be"),
                "FASTA begins": b"\n" * 70_000 + FASTA.encode(),
            }
            for message, body in bodies.items():
                answer = await post(client, body)
                assert answer.status_code == 400
                assert message in answer.json()["detail"]
            packed = gzip.compress(FASTA.encode())
            for rest in (b"x", b"garbage" * 99, b"\0\0\x1e"):
                answer = await post(client, packed + rest, {"content-encoding": "gzip"})
                assert "other bytes follow the end of the gzip data" in answer.text

    run(scenario)


def test_windows_hold_the_records_own_ids():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            got = rows(await post(client, FASTA, window=64, stride=48))
            body = {"vocabulary": "hyenadna", "sequence": RECORDS["one"], "window": 64}
            expected = (await client.post("/v1/windows", json=body | {"stride": 48})).json()
            own = [each for each in got if each["name"] == "one"]
            assert [each["start"] for each in own] == expected["starts"] == [0, 48, 96, 144, 192]
            for each, ids, mask in zip(
                own, expected["input_ids"], expected["attention_mask"], strict=True
            ):
                assert each["input_ids"] == ids[: sum(mask)]
            assert [each["start"] for each in got if each["name"] == "three"] == [0]
            assert not [each for each in got if each["name"] == "two"]

    run(scenario)


REFUSED = [
    ("ACGT", {}, 400, "line 1"),
    (">a\nACGT\n@b\n", {}, 200, None),
    ("@a\nACGT\n+\nII\n", {}, 400, "record 1"),
    ("@a\nACGT\n", {}, 400, "record 1"),
    (">a\nACGT\n>b\nAC;GT\n", {}, 400, "record 2"),
    (FASTA, {"stride": 5}, 422, "/stride"),
    (FASTA, {"window": 0}, 422, "/window"),
    (FASTA, {"vocabulary": "nothing"}, 404, None),
    (FASTA, {"dtype": "uint8", "vocabulary": "dnabert2"}, 422, "/dtype"),
]


@pytest.mark.parametrize(("content", "query", "status", "where"), REFUSED)
def test_a_refusal_names_the_place(content, query, status, where):
    async def scenario():
        async with serving(ENGINE) as (client, service):
            answer = await post(client, content, **query)
            assert answer.status_code == status
            assert where is None or answer.json()["where"] == where
            assert service.streams.num_streams == 0

    run(scenario)


def read_with_metadata(content):
    """Return the rows of all record batches but the last, and the last one with its metadata."""
    reader, rows = pa.ipc.open_stream(content), []
    while True:
        batch, metadata = reader.read_next_batch_with_custom_metadata()
        if metadata is not None:
            with pytest.raises(StopIteration):
                reader.read_next_batch()
            return rows, batch.to_pylist(), metadata.to_dict()
        rows += batch.to_pylist()


@pytest.mark.parametrize("query", [{}, {"window": 4, "stride": 4}])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            ">bad\nAC>GT\n",
            "the sequence has '>' inside a line; were files joined without a line end",
        ),
        ("@bad\nACGT\n+\nIII\n", "length of sequence and qualities differ"),
    ],
    ids=["FASTA", "FASTQ"],
)
def test_a_fault_behind_the_first_answer_is_the_last_row(bad, reason, query, caplog):
    record = "@%d\nACGT\n+\nIIII\n" if bad[0] == "@" else ">%d\nACGT\n"
    content = "".join(record % i for i in range(20_000)) + bad + record % 9

    async def scenario():
        async with serving(ENGINE) as (client, service):
            answer = await post(client, content, add_special_tokens=False, **query)
            rows, last, metadata = read_with_metadata(answer.content)
            assert [row["name"] for row in rows] == [str(i) for i in range(16_384)]
            ids = "input_ids" if query else "ids"
            assert all(row[ids] == [7, 8, 9, 10] for row in rows)
            (row,) = last
            error = row.pop("error")
            assert set(row.values()) == {None}
            assert error.startswith("bad_body: the body is neither FASTA nor FASTQ: ")
            assert reason.lower() in error.lower()
            assert "(record 20001)" in error
            assert metadata[b"warptok.error"] == b"bad_body"
            assert metadata[b"warptok.where"] == b"record 20001"
            assert metadata[b"warptok.message"].decode() in error
            assert service.streams.num_streams == 0

    run(scenario)
    (line,) = [line for line in caplog.records if line.name.startswith("service.apis")]
    assert line.levelname == "WARNING"
    assert line.exc_info is None
    assert line.getMessage() == "a stream ended with an error: bad_body at record 20001"


def test_a_record_that_is_too_long_is_named_behind_the_first_answer():
    content = "".join(f">{i}\nACGT\n" for i in range(20_000)) + ">x\n" + "ACGT" * 100

    async def scenario():
        async with serving(ENGINE, max_text_bytes=300) as (client, _):
            _, ((row),), metadata = read_with_metadata((await post(client, content)).content)
            assert row["error"].startswith("too_large: a record has at least ")
            assert row["error"].endswith("; max_text_bytes is 300 (record 20001)")
            assert metadata[b"warptok.where"] == b"record 20001"

    run(scenario)


def test_a_record_of_fastq_has_the_limit_of_a_text():
    async def scenario():
        async with serving(ENGINE, max_text_bytes=300) as (client, _):
            reads = "@a\nACGT\n+\nIIII\n", f"@b\n{'A' * 301}\n+\n{'I' * 301}\n"
            document = (await post(client, "".join(reads))).json()
            assert (document["status"], document["where"]) == (413, "record 2")
            assert document["detail"] == "the text has 301 bytes; max_text_bytes is 300"
            wrapped = f"@b\n{'A' * 300}\nA\n+\n{'I' * 301}\n"
            document = (await post(client, wrapped)).json()
            assert (document["status"], document["where"]) == (413, "record")
            assert document["detail"] == "a record has at least 301 bytes; max_text_bytes is 300"

    run(scenario)


def test_fastq_over_several_lines_is_read():
    async def scenario():
        wrapped = "".join(
            f"@{name}\n{text[:3]}\n{text[3:]}\n+\n{'@' * len(text)}\n"
            for name, text in RECORDS.items()
        )
        async with serving(ENGINE) as (client, _):
            assert rows(await post(client, wrapped)) == rows(await post(client, FASTQ))

    run(scenario)


def test_an_empty_file_has_no_records():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            assert rows(await post(client, b"")) == []

    run(scenario)


def test_a_record_that_never_ends_is_refused_while_it_is_read():
    async def scenario():
        async with serving(ENGINE, max_text_bytes=100_000) as (client, _):
            sent = 0

            async def endless():
                nonlocal sent
                yield b">a\n"
                for _ in range(200):
                    sent += 50_000
                    yield b"ACGTACGTA\n" * 5_000

            answer = await post(client, endless())
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
            assert sent < 2_000_000

    run(scenario)


def test_a_small_limit_on_bodies_is_none_on_files():
    async def scenario():
        async with serving(ENGINE, max_body_bytes=1024) as (client, _):
            answer = await post(client, b">a\n" + b"ACGT" * 1000 + b"\n")
            assert answer.status_code == 200, answer.text

    run(scenario)


def test_many_records_are_several_record_batches():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            content = "".join(f">{i}\nACGT\n" for i in range(40_000))
            answer = await post(client, content, dtype="uint8")
            batches = [*pa.ipc.open_stream(answer.content)]
            assert len(batches) == 3
            names = [name for batch in batches for name in batch.column("name").to_pylist()]
            assert names == [str(i) for i in range(40_000)]

    run(scenario)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 9), st.integers(1, 12))
def test_windows_are_those_of_a_loop(sizes, window, stride):
    offsets = np.cumsum([0, *sizes])
    ids = np.arange(offsets[-1], dtype=np.int32)
    errors = {0: RowError("no", "never")} if sizes[0] == 0 else {}
    encoded = Encoded(ids, offsets, errors=errors)
    result = Result(0, len(sizes), encoded, len(ids), offsets.tolist())
    names = [str(row) for row in range(len(sizes))]
    layout = WindowLayout(window, stride, False, 0, (), 0)
    messages = WindowMessages(np.int32, layout, WindowColumns(), 1 << 20)
    content = (
        bytes(messages.head())
        + b"".join(messages.message(result, RecordNames(names)))
        + messages.END
    )
    got = pa.ipc.open_stream(content).read_all().to_pylist()
    expected = []
    for row, size in enumerate(sizes):
        if row in errors:
            expected.append((str(row), 0, None))
        for start in range(0, size, stride):
            end = min(start + window, size)
            expected.append((str(row), start, ids[offsets[row] :][start:end].tolist()))
    assert [(each["name"], each["start"], each["input_ids"]) for each in got] == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [("gzip", gzip.compress(FASTA.encode())), ("zstd", b"\x28\xb5\x2f\xfd\x04\x00" + b"x" * 99)],
    ids=["gzip", "zstd"],  # Packed bytes hold the time, and workers must agree on names.
)
def test_the_refusal_of_a_compressed_body_names_the_missing_header(name, content):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, content)
            assert (answer.status_code, answer.json()["where"]) == (400, "line 1")
            assert answer.json()["detail"].endswith(f"send it with Content-Encoding: {name}")

    run(scenario)


@pytest.mark.parametrize("record", [b">r\nACGT\n", b"@r\nACGT\n+\nIIII\n"])
def test_a_file_may_have_more_records_than_a_request_texts(record):
    async def scenario():
        async with serving(ENGINE, max_texts=2) as (client, _):
            answer = await client.post(
                "/v1/encode/fasta", params={"vocabulary": "gpn"}, content=record * 5
            )
            rows = pa.ipc.open_stream(answer.content).read_all().to_pylist()
            assert [(row["name"], row["error"]) for row in rows] == [("r", None)] * 5

    run(scenario)
