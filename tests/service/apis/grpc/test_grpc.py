"""gRPC: the ids, limits and refusals of the JSON calls; streams, health, reflection, stopping."""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import struct
import threading
from itertools import pairwise
from urllib.parse import quote

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_status import rpc_status

from service.apis.grpc import tokenizer
from service.apis.grpc.server import NAME, GrpcServer, read_peer
from service.apis.grpc.status import abort
from service.core.errors import InvalidRequest
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.protos import generate
from service.protos import warptok_pb2 as pb
from service.server.app import create_app
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run, until
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch
from vocabularies.builtin import load
from vocabularies.errors import Finding
from vocabularies.formats import write_vocabulary
from vocabularies.reference.invalid_utf8 import encode_bytes
from vocabularies.sequences.augmentation import Augmentation, augment

ENGINE = CpuEngine()
TEXTS = ["Hello, world", "", "北京 now", "<|endoftext|>"]


@contextlib.asynccontextmanager
async def serving(engine=ENGINE, **settings):
    """A stub-like caller of the service's methods, and the service."""
    app = create_app(Settings(**{"preload": "none"} | settings), engine)
    service = app.service
    async with app.running():
        server = GrpcServer(app.oip)
        await server.start("127.0.0.1", 0)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                yield Client(channel, server.port), service
        finally:
            await server.stop(0)


class Client:
    """Calls by name, as generated stubs make them."""

    def __init__(self, channel, port):
        self.channel, self.port = channel, port
        methods = pb.DESCRIPTOR.services_by_name["Tokenizer"].methods_by_name
        for name, method in methods.items():
            kind = f"{'stream' if method.client_streaming else 'unary'}_"
            kind += "stream" if method.server_streaming else "unary"
            answer = getattr(pb, method.output_type.name)
            call = getattr(channel, kind)(
                f"/{NAME}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            setattr(self, name, call)


def batch_request(texts, vocabulary="gpt2", **options):
    rows = [text if isinstance(text, bytes) else text.encode() for text in texts]
    batch = Batch.from_bytes(rows)
    return pb.EncodeBatchRequest(
        vocabulary=vocabulary,
        data=batch.data.tobytes(),
        offsets=batch.offsets.tobytes(),
        options=pb.Options(**options),
    )


def rows_of(response, dtype=np.int32):
    ids, offsets = np.frombuffer(response.ids, dtype), np.frombuffer(response.offsets, np.int64)
    return [ids[b:e].tolist() for b, e in pairwise(offsets)]


def expected(texts, vocabulary="gpt2"):
    encoded = ENGINE.encode(load(vocabulary), Batch(texts))
    return [encoded.row(row).tolist() for row in range(len(texts))]


def details(error):
    """The status's details by type."""
    found = {}
    for packed in rpc_status.from_call(error).details:
        kind = getattr(error_details_pb2, packed.TypeName().rsplit(".", 1)[1])
        packed.Unpack(detail := kind())
        found[kind.__name__] = detail
    return found


def test_one_text():
    async def scenario():
        async with serving() as (client, _):
            request = pb.EncodeRequest(vocabulary="gpt2", text=b"Hello, world")
            answer = await client.Encode(request)
            assert np.frombuffer(answer.ids, np.int32).tolist() == [15496, 11, 995]
            assert answer.num_tokens == 3
            assert answer.engine == "cpu"
            assert answer.digest == load("gpt2").digest
            request.options.CopyFrom(pb.Options(max_length=2, return_offsets=True, dtype="uint16"))
            answer = await client.Encode(request)
            assert np.frombuffer(answer.ids, np.uint16).tolist() == [15496, 11]
            assert np.frombuffer(answer.spans, np.int64).tolist() == [0, 5, 5, 6]
            assert (answer.truncated.num_tokens, answer.truncated.kept_end) == (3, 2)
            assert answer.kernel_time == 0
            request.options.return_kernel_time = True
            assert (await client.Encode(request)).kernel_time > 0

    run(scenario)


@pytest.mark.parametrize("vocabulary", ["gpt2", "hyenadna", "nt_v2", "dnabert2"])
def test_many_texts(vocabulary):
    async def scenario():
        async with serving() as (client, _):
            answer = await client.EncodeBatch(batch_request(TEXTS, vocabulary))
            assert rows_of(answer) == expected(TEXTS, vocabulary)
            counted = await client.Count(batch_request(TEXTS, vocabulary))
            lengths = [len(row) for row in rows_of(answer)]
            assert np.frombuffer(counted.num_tokens, np.int64).tolist() == lengths
            timed = batch_request(TEXTS, vocabulary)
            timed.options.return_kernel_time = True
            for answer in (await client.EncodeBatch(timed), await client.Count(timed)):
                assert answer.kernel_time > 0
            async for answer in client.EncodeStream(iter([timed, batch_request(TEXTS)])):
                assert answer.kernel_time > 0

    run(scenario)


def test_the_tokens_of_a_long_text_are_written_beside_the_loop(monkeypatch):
    threads = []
    make = tokenizer._text_response

    def watch(*arguments):
        threads.append(threading.current_thread() is threading.main_thread())
        return make(*arguments)

    monkeypatch.setattr(tokenizer, "_text_response", watch)

    async def scenario():
        async with serving() as (client, _):
            for text in ("a b", "a b " * 40_000):
                options = pb.Options(return_tokens=True)
                request = pb.EncodeRequest(vocabulary="gpt2", text=text.encode(), options=options)
                answer = await client.Encode(request)
                assert len(answer.tokens) == answer.num_tokens
                assert answer.tokens[:2] == ["a", " b"]

    run(scenario)
    assert threads == [True, False]


def test_sequences_are_changed_at_random():
    changes = {"seed": 5, "crop_letters": 4, "substitution_rate": 0.5, "first_row": 9}
    rows = ["ACGTACGTAC", "GATTACA" * 3, "", "ACGTN" * 4]
    data, offsets = augment(Batch(rows).data, Batch(rows).offsets, Augmentation(**changes))
    texts = [data[begin:end].tobytes().decode() for begin, end in pairwise(offsets)]

    async def scenario():
        async with serving() as (client, _):
            request = batch_request(rows, "hyenadna")
            request.options.augmentation.CopyFrom(pb.Augmentation(**changes))
            assert rows_of(await client.EncodeBatch(request)) == expected(texts, "hyenadna")
            parts = [batch_request(rows[:1], "hyenadna"), batch_request(rows[1:], "hyenadna")]
            parts[0].options.CopyFrom(request.options)
            answers = [rows_of(part) async for part in client.EncodeStream(iter(parts))]
            assert [row for rows in answers for row in rows] == expected(texts, "hyenadna")
            one = pb.EncodeRequest(vocabulary="hyenadna", text=b"A", options=request.options)
            wrong = batch_request(rows, "hyenadna")
            wrong.options.augmentation.substitution_rate = 2
            placed = batch_request(rows, "hyenadna")
            placed.options.CopyFrom(request.options)
            placed.options.return_offsets = True
            for call, message, where in (
                (client.Encode, one, "options.augmentation"),
                (client.Count, request, "options.augmentation"),
                (client.EncodeBatch, wrong, "options.augmentation"),
                (client.EncodeBatch, placed, "options.return_offsets"),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(message)
                violations = details(refused.value)["BadRequest"].field_violations
                assert violations[0].field == where

    run(scenario)


def test_begin_and_end_tokens_are_added_unless_refused():
    async def scenario():
        async with serving() as (client, _):
            request = batch_request(["ACGT"], "dnabert2", add_special_tokens=False)
            without = rows_of(await client.EncodeBatch(request))[0]
            assert expected(["ACGT"], "dnabert2")[0] == [1, *without, 2]

    run(scenario)


def test_a_bad_row_leaves_the_others_answered():
    async def scenario():
        async with serving() as (client, _):
            answer = await client.EncodeBatch(batch_request(["Hello", b"a\xff", "Hello"]))
            assert rows_of(answer) == [[15496], [], [15496]]
            (error,) = answer.errors
            assert (error.row, error.code, error.where) == (1, "not_utf8", "byte 1")

    run(scenario)


def test_a_stream_is_answered_message_by_message():
    async def scenario():
        async with serving() as (client, _):
            call = client.EncodeStream()
            for number in range(5):
                texts = [f"Hello {number}", "world"]
                await call.write(batch_request(texts))
                # The answer is there before the next request is sent.
                assert rows_of(await call.read()) == expected(texts)
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF

    run(scenario)


def test_a_stream_that_is_written_before_it_is_read():
    async def scenario():
        async with serving() as (client, _):
            batches = [[f"text {number} " * 2000] for number in range(30)]
            answers = client.EncodeStream(batch_request(texts) for texts in batches)
            got = [rows_of(answer) async for answer in answers]
            assert got == [expected(texts) for texts in batches]

    run(scenario)


def test_a_wrong_message_ends_its_stream_after_the_answers_before_it():
    async def scenario():
        async with serving() as (client, _):
            bad = batch_request(["x"])
            bad.offsets = struct.pack("<qq", 0, 7)
            answers = client.EncodeStream(iter([batch_request(["Hello"]), bad]))
            got = []
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for answer in answers:
                    got.append(rows_of(answer))
            assert got == [[[15496]]]
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    run(scenario)


def test_decode_is_the_inverse():
    async def scenario():
        async with serving() as (client, _):
            encoded = await client.EncodeBatch(batch_request(TEXTS))
            request = pb.DecodeBatchRequest(
                vocabulary="gpt2", ids=encoded.ids, offsets=encoded.offsets
            )
            decoded = await client.DecodeBatch(request)
            offsets = np.frombuffer(decoded.offsets, np.int64)
            rows = [decoded.data[b:e].decode() for b, e in pairwise(offsets)]
            assert rows == TEXTS
            one = pb.DecodeRequest(vocabulary="gpt2", ids=np.array([15496], np.int32).tobytes())
            assert (await client.Decode(one)).text == b"Hello"

    run(scenario)


def test_decode_refuses_ids_that_are_none():
    async def scenario():
        async with serving() as (client, _):
            ids = np.array([15496, 60000, -1], np.int32).tobytes()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.Decode(pb.DecodeRequest(vocabulary="gpt2", ids=ids))
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert details(caught.value)["BadRequest"].field_violations[0].field == "ids: ids[1]"
            offsets = np.array([0, 1, 3]).tobytes()
            request = pb.DecodeBatchRequest(vocabulary="gpt2", ids=ids, offsets=offsets)
            answer = await client.DecodeBatch(request)
            assert answer.data == b"Hello"
            assert [error.row for error in answer.errors] == [1]

    run(scenario)


def test_windows():
    async def scenario():
        async with serving() as (client, _):
            request = pb.WindowsRequest(
                vocabulary="mtdna6",
                sequence=b"GATCACAGGTCTATCACCCT",
                window=8,
                stride=4,
                circular=True,
                channel=np.arange(20, dtype=np.float32).tobytes(),
            )
            answer = await client.Windows(request)
            shape = (answer.num_windows, answer.width)
            assert shape == (5, 8)
            ids = np.frombuffer(answer.input_ids, np.int32).reshape(shape)
            channel = np.frombuffer(answer.channel, np.float32).reshape(shape)
            row = expected(["GATCACAGGTCTATCACCCT"], "mtdna6")[0]
            assert ids[0].tolist() == row[:8]
            assert channel[1].tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
            assert np.frombuffer(answer.starts, np.int64).tolist() == [0, 4, 8, 12, 16]
            assert answer.kernel_time == 0
            request.junction = "prepend"
            request.return_kernel_time = True
            answer = await client.Windows(request)
            assert answer.kernel_time > 0
            positions = np.frombuffer(answer.position_ids, np.int64).reshape(shape)
            assert positions[0].tolist() == [15, 16, 17, 18, 19, 0, 1, 2]

    run(scenario)


def test_bytes_that_are_not_utf8_have_ids_on_request():
    async def scenario():
        async with serving() as (client, _):
            options = pb.Options(invalid_utf8="bytes")
            request = pb.EncodeRequest(vocabulary="gpt2", text=b"Hello\xff", options=options)
            answer = await client.Encode(request)
            ids = np.frombuffer(answer.ids, np.int32).tolist()
            tokens = encode_bytes(load("gpt2"), b"Hello\xff", DEFAULT_OPTIONS)
            assert ids == [token.id for token in tokens]
            request.options.invalid_utf8 = "drop"
            with pytest.raises(grpc.aio.AioRpcError, match="refuse or bytes"):
                await client.Encode(request)

    run(scenario)


def test_chunks():
    async def scenario():
        async with serving() as (client, _):
            text = "Hello, world! Hello, world!"
            request = pb.ChunksRequest(
                vocabulary="gpt2", text=text.encode(), chunk_size=3, chunk_overlap=1
            )
            answer = await client.Chunks(request)
            row = expected([text], "gpt2")[0]
            offsets = np.frombuffer(answer.offsets, np.int64).tolist()
            ids = np.frombuffer(answer.ids, np.int32).tolist()
            rows = [ids[begin:end] for begin, end in pairwise(offsets)]
            starts = np.frombuffer(answer.starts, np.int64).tolist()
            assert rows == [row[start : start + 3] for start in starts]
            assert starts == [0, 2, 4, 6][: len(starts)]
            spans = np.frombuffer(answer.spans, np.int64).reshape(-1, 2).tolist()
            assert (spans[0][0], spans[-1][1]) == (0, len(text))
            assert (answer.num_tokens, answer.engine) == (len(row), "cpu")
            assert answer.kernel_time == 0
            request.return_kernel_time = True
            assert (await client.Chunks(request)).kernel_time > 0
            for change, field in (
                ({"chunk_overlap": 3}, "chunk_overlap"),
                ({"text": b"\xff"}, "text: byte 0"),
                ({"special": "all"}, "special"),
            ):
                wrong = {"vocabulary": "gpt2", "text": b"a", "chunk_size": 3} | change
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await client.Chunks(pb.ChunksRequest(**wrong))
                violations = details(caught.value)["BadRequest"].field_violations
                assert violations[0].field == field

    run(scenario)


WINDOWS = {"vocabulary": "mtdna6", "sequence": b"GATCACAGGTCTATCACCCT", "window": 8, "stride": 4}
WRONG_WINDOWS = [
    ({"window": 0}, "window"),
    ({"stride": 1}, "window"),
    ({"sequence": b"\xff"}, "sequence: byte 0"),
    ({"channel": np.full(20, np.inf, np.float32).tobytes()}, "channel[0]"),
    ({"vocabulary": "gpt2"}, "vocabulary"),
    ({"junction": "prepend"}, "junction"),
    ({"junction": "middle", "circular": True}, "junction"),
]


@pytest.mark.parametrize(("change", "field"), WRONG_WINDOWS)
def test_what_is_wrong_with_windows_has_the_name_of_its_field(change, field):
    async def scenario():
        async with serving(max_window_ids=100) as (client, _):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.Windows(pb.WindowsRequest(**WINDOWS | change))
            violations = details(caught.value)["BadRequest"].field_violations
            assert violations[0].field == field
            assert caught.value.details().startswith(f"{field}: ")

    run(scenario)


def test_vocabularies_are_listed_put_and_deleted():
    async def scenario():
        async with serving() as (client, _):
            (content,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
            assert content.count(b'"padding":null') == 1
            content = content.replace(b'"padding":null', b'"padding":{"pad_id":0}')
            pieces = [
                pb.PutVocabularyRequest(
                    vocabulary="mine", file="tokenizer.json", data=content[:100]
                ),
                pb.PutVocabularyRequest(data=content[100:]),
            ]
            put = await client.PutVocabulary(iter(pieces))
            assert put.created
            assert put.vocabulary.size == len(load("gpn"))
            assert [note.split()[0] for note in put.vocabulary.notes] == ["padding"]
            listed = await client.ListVocabularies(pb.ListVocabulariesRequest())
            assert {"gpt2", "mine"} <= {each.name for each in listed.vocabularies}
            got = await client.GetVocabulary(pb.GetVocabularyRequest(vocabulary="mine"))
            assert got == put.vocabulary
            await client.DeleteVocabulary(pb.DeleteVocabularyRequest(vocabulary="mine"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.GetVocabulary(pb.GetVocabularyRequest(vocabulary="mine"))
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND

    run(scenario)


def test_the_first_message_of_an_upload_may_only_describe_it():
    async def scenario():
        async with serving() as (client, _):
            (content,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
            head = pb.PutVocabularyRequest(vocabulary="mine")
            file = pb.PutVocabularyRequest(file="tokenizer.json", data=content)
            put = await client.PutVocabulary(iter([head, file]))
            assert put.vocabulary.size == len(load("gpn"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.PutVocabulary(iter([head]))
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    run(scenario)


def test_a_vocabulary_has_a_name_with_a_slash_and_aliases():
    async def scenario():
        async with serving() as (client, _):
            (content,) = write_vocabulary(load("gpn"), "tokenizer.json").values()
            first = pb.PutVocabularyRequest(
                vocabulary="my/dna", file="tokenizer.json", data=content, aliases=["dna"]
            )
            put = await client.PutVocabulary(iter([first]))
            assert (put.vocabulary.name, [*put.vocabulary.aliases]) == ("my/dna", ["dna"])
            request = pb.PutAliasRequest(alias="other/dna", vocabulary="dna")
            given = await client.PutAlias(request)
            assert (given.vocabulary, given.created) == ("my/dna", True)
            assert not (await client.PutAlias(request)).created
            for name in ("my/dna", "dna", "other/dna"):
                answer = await client.EncodeBatch(batch_request(["ACGT"], name))
                assert answer.digest == load("gpn").digest
            got = await client.GetVocabulary(pb.GetVocabularyRequest(vocabulary="other/dna"))
            assert (got.name, [*got.aliases]) == ("my/dna", ["dna", "other/dna"])
            deletes = pb.DeleteVocabularyRequest(vocabulary="dna")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.DeleteVocabulary(deletes)
            assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
            assert caught.value.details().startswith("vocabulary: dna is an alias of my/dna")
            wrong = pb.PutVocabularyRequest(
                vocabulary="../dna", file="tokenizer.json", data=content
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.PutVocabulary(iter([wrong]))
            assert caught.value.details().startswith("vocabulary: a name has")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.PutAlias(pb.PutAliasRequest(alias="a//b", vocabulary="dna"))
            assert caught.value.details().startswith("alias: a name has")
            await client.DeleteAlias(pb.DeleteAliasRequest(alias="dna"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.DeleteVocabulary(deletes)
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND
            await client.DeleteVocabulary(pb.DeleteVocabularyRequest(vocabulary="my/dna"))
            with pytest.raises(grpc.aio.AioRpcError):
                await client.EncodeBatch(batch_request(["ACGT"], "other/dna"))

    run(scenario)


BAD = [
    (batch_request(["x"], "nothing"), "NOT_FOUND", "unknown_vocabulary", None),
    (batch_request(["x"], special="all"), "INVALID_ARGUMENT", "invalid_request", "options.special"),
    (batch_request(["x"], dtype="int8"), "INVALID_ARGUMENT", "invalid_request", "options.dtype"),
    (batch_request(["x"], dtype="uint8"), "INVALID_ARGUMENT", "invalid_request", "options.dtype"),
    (batch_request(["x"], if_digest="no"), "FAILED_PRECONDITION", "digest_differs", None),
    (
        pb.EncodeBatchRequest(vocabulary="gpt2", data=b"ab", offsets=b"123"),
        "INVALID_ARGUMENT",
        "invalid_request",
        "offsets",
    ),
    (
        pb.EncodeBatchRequest(vocabulary="gpt2", data=b"ab", offsets=struct.pack("<3q", 0, 9, 2)),
        "INVALID_ARGUMENT",
        "invalid_request",
        "offsets[2]",
    ),
    (
        pb.EncodeBatchRequest(
            vocabulary="gpt2", data=b"ab", offsets=struct.pack("<5q", 0, 2**63 - 1, -(2**63), -1, 2)
        ),
        "INVALID_ARGUMENT",
        "invalid_request",
        "offsets[2]",
    ),
    (pb.EncodeBatchRequest(vocabulary="gpt2"), "INVALID_ARGUMENT", "invalid_request", "offsets"),
]


@pytest.mark.parametrize(("request_", "code", "reason", "field"), BAD)
def test_a_refusal_says_why_and_where(request_, code, reason, field):
    async def scenario():
        async with serving() as (client, _):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.EncodeBatch(request_)
            assert caught.value.code().name == code
            found = details(caught.value)
            assert (found["ErrorInfo"].reason, found["ErrorInfo"].domain) == (reason, "warptok")
            if field is not None:
                assert found["BadRequest"].field_violations[0].field == field

    run(scenario)


@pytest.mark.parametrize("letter", ["x", "é", "京"])
@pytest.mark.parametrize("num_findings", [0, 100])
def test_a_long_refusal_is_cut_so_that_its_client_reads_it(letter, num_findings):
    class Refusing:
        async def abort_with_status(self, status):
            self.status = status
            raise RuntimeError

    where, context = "/" + letter * 30_000, Refusing()
    findings = [Finding(where, letter * 900)] * num_findings
    with contextlib.suppress(RuntimeError):
        run(lambda: abort(context, InvalidRequest(letter * 30_000, where, findings), "an id"))
    status = context.status
    assert status.details.startswith(letter)
    num_bytes = len(quote(status.details))
    num_bytes += sum(len(value) * 4 // 3 for _, value in status.trailing_metadata)  # base64
    assert num_bytes < 8192


def test_the_row_that_is_too_long_is_named():
    async def scenario():
        async with serving(max_text_bytes=1024) as (client, _):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.EncodeBatch(batch_request(["a", "b" * 1025]))
            assert caught.value.details().startswith("row 1: the text has 1025 bytes")

    run(scenario)


@pytest.mark.parametrize("option", ["return_offsets", "return_tokens"])
def test_count_refuses_what_its_answer_cannot_have(option):
    async def scenario():
        async with serving() as (client, _):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.Count(batch_request(TEXTS, **{option: True}))
            assert caught.value.details().startswith(f"options.{option}: ")

    run(scenario)


def test_a_full_queue_says_when_to_try_again():
    async def scenario():
        engine = FakeEngine()
        async with serving(engine, max_queue_bytes=1024) as (client, service):
            books = service.batcher.admission
            books.num_bytes, books.num_rows = 2000, 1
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.EncodeBatch(batch_request(["x"], "evo_bytes"))
            books.num_bytes, books.num_rows = 0, 0
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert details(caught.value)["RetryInfo"].retry_delay.seconds >= 1

    run(scenario)


def test_a_deadline_that_passes_in_the_queue_ends_the_call():
    async def scenario():
        engine = FakeEngine()
        async with serving(engine, inline_batch_bytes=0) as (client, _):
            engine.gate.clear()
            first = asyncio.ensure_future(
                client.EncodeBatch(batch_request(["x"], "evo_bytes"), timeout=120)
            )
            await until(lambda: engine.batches)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.EncodeBatch(batch_request(["y"], "evo_bytes"), timeout=0.3)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            engine.gate.set()
            await first

    run(scenario)


def test_health_says_what_readiness_says():
    async def scenario():
        async with serving() as (client, service):
            check = client.channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            states = health_pb2.HealthCheckResponse

            async def until_it_says(state, name):
                while (await check(health_pb2.HealthCheckRequest(service=name))).status != state:
                    await asyncio.sleep(0.05)

            for name in ("", NAME):
                await until_it_says(states.SERVING, name)
            service.draining = True
            await until_it_says(states.NOT_SERVING, NAME)

    run(scenario)


def test_reflection_lists_the_service():
    async def scenario():
        async with serving() as (client, _):
            info = client.channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            (answer,) = [answer async for answer in info(iter([request]))]
            names = {each.name for each in answer.list_services_response.service}
            assert {NAME, "grpc.health.v1.Health"} <= names

    run(scenario)


def test_calls_are_counted_with_their_status():
    async def scenario():
        async with serving() as (client, service):
            await client.EncodeBatch(batch_request(["x"]))
            with pytest.raises(grpc.aio.AioRpcError):
                await client.EncodeBatch(batch_request(["x"], "nothing"))
            text = service.metrics.exposition()[0].decode()
            assert f'route="/{NAME}/EncodeBatch",status="200"' in text
            assert f'route="/{NAME}/EncodeBatch",status="404"' in text

    run(scenario)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:4711", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::1"),
        ("ipv6:[::1]:4711", "::1"),
        ("unix:/run/warptok.sock", ""),
        ("unknown", ""),
    ],
)
def test_a_peer_has_an_address_unless_it_is_a_unix_socket(peer, address):
    assert read_peer(peer) == address


def test_what_protoc_makes_is_what_is_kept(tmp_path):
    pytest.importorskip("grpc_tools", reason="grpcio-tools makes the files")
    generate.generate(tmp_path)
    names = [path.name for path in tmp_path.iterdir()]
    assert names
    _, different, missing = filecmp.cmpfiles(tmp_path, generate.FOLDER, names, shallow=False)
    assert (different, missing) == ([], [])
