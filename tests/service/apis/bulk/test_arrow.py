"""Arrow streams: the ids of the JSON call, a record batch of them as soon as it is there."""

from __future__ import annotations

import asyncio
import gzip
import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.apis.bulk.arrow_reader import MEDIA_TYPE, TextReader
from service.core.errors import ServiceError
from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.server_process import Server
from tests.support.waiting import run

ARROW = {"content-type": MEDIA_TYPE}
ENGINE = CpuEngine()
TEXTS = [["Hello, world", "", "北京 now"], [], ["a" * 5000], ["<|endoftext|>", "it's"]]


def stream(batches, kind=None, name="text", **options):
    schema = pa.schema([("n", pa.int32()), (name, kind or pa.string())])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for texts in batches:
            column = pa.array(texts, kind or pa.string())
            numbers = pa.array(range(len(texts)), pa.int32())
            writer.write_batch(pa.RecordBatch.from_arrays([numbers, column], schema=schema))
    return sink.getvalue()


def read(content):
    return [batch.to_pydict() for batch in pa.ipc.open_stream(content)]


async def post(client, content, headers=ARROW, **query):
    url, query = "/v1/encode/batch", {"vocabulary": "gpt2"} | query
    return await client.post(url, params=query, content=content, headers=headers)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str
)
def test_each_record_batch_is_answered_with_the_ids_of_the_json_call(kind):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            is_text = "string" in str(kind)
            batches = TEXTS if is_text else [[t.encode() for t in texts] for texts in TEXTS]
            answer = await post(client, stream(batches, kind))
            assert answer.status_code == 200
            assert answer.headers["content-type"] == MEDIA_TYPE
            for texts, got in zip(TEXTS, read(answer.content), strict=True):
                body = {"vocabulary": "gpt2", "texts": texts}
                expected = (await client.post("/v1/encode/batch", json=body)).json()
                assert got == {"ids": expected["ids"], "error": [None] * len(texts)}

    run(scenario)


def test_options_and_the_width_of_ids():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            content = stream([["ACGT", "AC"]])
            answer = await post(client, content, vocabulary="hyenadna", dtype="uint8", max_length=3)
            table = pa.ipc.open_stream(answer.content).read_all()
            assert table.schema.field("ids").type == pa.list_(pa.uint8())
            assert table.column("ids").to_pylist() == [[7, 8, 1], [7, 8, 1]]

    run(scenario)


def test_a_bad_row_says_why_and_leaves_the_others_answered():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            rows = [b"Hello", None, b"a\xff", b"Hello"]
            (got,) = read((await post(client, stream([rows], pa.binary()))).content)
            assert got["ids"] == [[15496], None, None, [15496]]
            assert got["error"][1] == "the text is null"
            assert got["error"][2].startswith("not_utf8: ")
            assert got["error"][2].endswith("byte 1")
            assert got["error"][0] is None

    run(scenario)


def test_a_sliced_column_gives_its_own_rows():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            column = pa.array(["x", "Hello", "it's", "y"])[1:3]
            batch = pa.record_batch([column], names=["text"])
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            (got,) = read((await post(client, sink.getvalue())).content)
            assert got["ids"] == [[15496], [270, 338]]

    run(scenario)


def test_a_stream_without_batches_is_answered_with_one():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await post(client, stream([]))
            assert pa.ipc.open_stream(answer.content).read_all().num_rows == 0

    run(scenario)


GOOD = stream([["Hello"]])
REFUSED = [
    (b"", {}, 400, "body"),
    (b"no arrow at all, whatever it says", {}, 400, "body"),
    (GOOD[:40], {}, 400, "record batch 0"),
    (stream([["Hello"]], name="texts"), {}, 422, "schema"),
    (stream([[1, 2]], pa.int64()), {}, 422, "schema"),
    (stream([["Hello" * 100]], compression="zstd"), {}, 415, "record batch 0"),
    (stream([]) + b"x", {}, 400, "body"),
    (GOOD, {"vocabulary": "none"}, 404, ""),
    (GOOD, {"dtype": "uint8"}, 422, "/dtype"),
    (GOOD, {"return_tokens": "true"}, 422, "/return_tokens"),
]


@pytest.mark.parametrize(("content", "query", "status", "where"), REFUSED)
def test_what_is_wrong_before_the_first_answer_is_refused(content, query, status, where):
    async def scenario():
        async with serving(ENGINE) as (client, service):
            answer = await post(client, content, **query)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert not where or answer.json()["where"] == where
            assert service.streams.num_streams == 0

    run(scenario)


@pytest.mark.parametrize(
    ("content", "headers", "words"),
    [
        (GOOD + b"\n", ARROW, "behind the end"),
        (GOOD + GOOD, ARROW, "behind the end"),
        (gzip.compress(GOOD)[:-4], ARROW | {"content-encoding": "gzip"}, "incomplete"),
    ],
)
def test_what_follows_the_end_of_a_stream_is_not_ignored(content, headers, words):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            first, last = read((await post(client, content, headers)).content)
            assert first["error"] == [None]
            assert last["error"][0].startswith("bad_body: ")
            assert words in last["error"][0]

    run(scenario)


def test_two_columns_of_texts_are_refused():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            sink, texts = io.BytesIO(), pa.array(["Hello"])
            batch = pa.RecordBatch.from_arrays([texts, texts], ["text", "text"])
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            answer = await post(client, sink.getvalue())
            assert (answer.status_code, answer.json()["where"]) == (422, "schema")
            assert answer.json()["detail"] == "there are 2 columns text"

    run(scenario)


def test_a_fault_behind_the_first_answer_is_the_last_row(caplog):
    """Its batch has metadata, so that it is no refused text."""

    async def scenario():
        async with serving(ENGINE, max_texts=3) as (client, service):
            for content, code, where in (
                (stream([["Hello"], ["world"]])[:-40], b"bad_body", b"record batch 1"),
                (stream([["Hello"], ["a"] * 4]), b"too_large", b"record batch 1"),
            ):
                caplog.clear()
                answer = await post(client, content)
                assert answer.status_code == 200
                reader = pa.ipc.open_stream(answer.content)
                first, metadata = reader.read_next_batch_with_custom_metadata()
                assert (first.to_pylist(), metadata) == ([{"ids": [15496], "error": None}], None)
                last, metadata = reader.read_next_batch_with_custom_metadata()
                values = metadata.to_dict()
                assert (values[b"warptok.error"], values[b"warptok.where"]) == (code, where)
                (row,) = last.to_pylist()
                assert row["ids"] is None
                assert row["error"].startswith(code.decode() + ": ")
                with pytest.raises(StopIteration):
                    reader.read_next_batch()
                assert [line.levelname for line in caplog.records] == ["WARNING"]
                assert service.streams.num_streams == 0

    run(scenario)


def test_a_messages_claimed_size_is_limited_before_memory_is_allocated():
    async def scenario():
        async with serving(ENGINE, max_body_bytes=1_000_000) as (client, _):
            answer = await post(client, stream([["x" * 2_000_000]]))
            assert answer.status_code == 413
            answer = await post(client, b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(100))
            assert answer.status_code == 413

    run(scenario)


def test_a_text_has_the_limit_of_a_text():
    async def scenario():
        async with serving(ENGINE, max_text_bytes=8) as (client, _):
            answer = await post(client, stream([["Hello"] * 9 + ["x" * 8, "x" * 9]]))
            document = answer.json()
            assert (answer.status_code, document["where"]) == (413, "record batch 0, text 10")
            assert document["detail"] == "the text has 9 bytes; max_text_bytes is 8"
            answer = await post(client, stream([["Hello"] * 9 + ["x" * 8]]))
            assert answer.status_code == 200

    run(scenario)


def test_more_streams_than_allowed_are_refused():
    async def scenario():
        async with serving(ENGINE, max_streams=1) as (client, service):
            service.streams.num_streams = 1
            answer = await post(client, GOOD)
            assert (answer.status_code, answer.json()["code"]) == (429, "too_many_streams")
            service.streams.num_streams = 0
            assert (await post(client, GOOD)).status_code == 200

    run(scenario)


@given(st.data())
@settings(max_examples=500)
def test_a_damaged_stream_is_a_refusal_or_texts_and_nothing_else(data):
    content = bytearray(stream([["Hello", "world"], [None, "x" * 40]]))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    source = io.BytesIO(content[: data.draw(st.integers(0, len(content)))])

    def read_bytes(num_bytes):
        if num_bytes > 100_000:
            raise ServiceError("too large")
        return source.read(num_bytes)

    try:
        reader = TextReader(read_bytes)
        while (got := reader.next_batch()) is not None:
            batch, nulls = got
            assert len(nulls) == len(batch)
            assert (np.diff(batch.offsets) >= 0).all()
            assert batch.offsets[-1] == len(batch.data)
    except ServiceError:
        pass


def test_an_answer_comes_before_the_next_batch_is_sent(server: Server):
    """On a real connection: the client sends a record batch only when it has the last one's ids."""

    async def scenario():
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/encode/batch?vocabulary=gpt2 HTTP/1.1\r\nHost: {host}\r\n"
        head += f"Content-Type: {MEDIA_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        sink = Chunks(writer)
        schema = pa.schema([("text", pa.string())])
        stream_writer = pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema)
        received = b""
        for number in range(3):
            text = "Hello" + " world" * number
            stream_writer.write_batch(pa.record_batch([pa.array([text])], schema=schema))
            wanted = np.array([15496, *[995] * number], np.int32).tobytes()
            while wanted not in received:
                received += await more(reader)
        stream_writer.close()
        writer.write(b"0\r\n\r\n")
        while not received.endswith(b"0\r\n\r\n"):
            received += await more(reader)
        writer.close()

    run(scenario)


async def more(reader):
    piece = await reader.read(65536)
    assert piece, "the connection was closed"
    return piece


class Chunks:
    """Writes go out as HTTP chunks."""

    closed = False

    def __init__(self, writer):
        self.writer = writer

    def write(self, data):
        data = bytes(data)
        if data:
            self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def flush(self):
        pass

    def close(self):
        pass

    def readable(self):
        return False

    def writable(self):
        return True
