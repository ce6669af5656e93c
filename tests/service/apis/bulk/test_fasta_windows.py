"""Windows over FASTA: circles, order, positions, mask, channel and [CLS], by the document."""

from __future__ import annotations

import gzip
import itertools
import sys
from unittest import mock

import pyarrow as pa
import pytest

from service.apis.bulk import fasta_batches
from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.inputs.paper_windows import paper_windows
from tests.support.waiting import run

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENGINE = CpuEngine()
GENOMES = {
    "one": "GATCACAGGTCTATCACCCTNATTAACC",
    "two": "GATTACAgattacaGATTACA",
    "long": "ACGTTGCAAC" * 40 + "NNGATTACA" * 20,
}
LEVELS = {name: [number / 1024 for number in range(len(GENOMES[name]))] for name in GENOMES}
FASTA = "".join(f">{name} x\n{bases}\n" for name, bases in GENOMES.items())
CHANNEL = "".join(
    f"{name}\t{position}\t{value}\n"
    for name in ("one", "long")
    for position, value in enumerate(LEVELS[name])
)
QUERY = {"vocabulary": "mtdna6", "window": 8, "stride": 5}
ALL = {"padding": "window", "return_positions": True}


async def post(client, body=FASTA, channel=None, **query):
    if channel is None:
        return await client.post("/v1/encode/fasta", params=QUERY | query, content=body.encode())
    parts = {"channel": ("levels.tsv", channel), "sequences": ("genomes.fa", body)}
    return await client.post("/v1/encode/fasta", params=QUERY | query, files=parts)


def rows(answer):
    assert answer.status_code == 200, answer.text
    return pa.ipc.open_stream(answer.content).read_all().to_pylist()


def expected(**options):
    cut = []
    for name, bases in GENOMES.items():
        levels = LEVELS[name] if name != "two" else None
        for row in paper_windows(bases, window=8, stride=5, levels=levels, **options):
            cut.append({"name": name, **row, "error": None})
    return cut


CIRCLES = [(True, "append"), (True, "prepend"), (True, None), (False, None)]


@pytest.mark.parametrize("part_bytes", [50, 1 << 20])
@pytest.mark.parametrize(("circle", "add_cls"), list(itertools.product(CIRCLES, [False, True])))
def test_all_columns_are_those_of_the_document(circle, add_cls, part_bytes):
    circular, junction = circle
    order = {} if junction is None else {"junction": junction}

    async def scenario():
        async with serving(ENGINE) as (client, _):
            query = ALL | order | {"circular": circular, "add_cls": add_cls}
            got = rows(await post(client, channel=CHANNEL, **query))
            assert got == expected(
                circular=circular, junction=junction or "append", add_cls=add_cls
            )

    with mock.patch.object(fasta_batches, "PART_BYTES", part_bytes):
        run(scenario)


@pytest.mark.parametrize("add_cls", [False, True])
def test_without_padding_the_last_windows_are_shorter(add_cls):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            query = {"add_cls": add_cls, "return_positions": True, "dtype": "uint16"}
            got = rows(await post(client, **query))
            padded = expected(circular=False, junction="append", add_cls=add_cls)
            for row, whole in zip(got, padded, strict=True):
                assert set(row) == {"name", "start", "input_ids", "position_ids", "error"}
                length = sum(whole["attention_mask"])
                assert row["input_ids"] == whole["input_ids"][:length]
                assert row["position_ids"] == whole["position_ids"][:length]

    run(scenario)


def test_windows_of_a_circle_need_no_other_column():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            got = rows(await post(client, circular=True))
            wanted = expected(circular=True, junction="append")
            for row, whole in zip(got, wanted, strict=True):
                names = ("name", "start", "input_ids", "error")
                assert row == {name: whole[name] for name in names}

    run(scenario)


def test_positions_and_values_of_the_other_strand_of_a_circle_are_around_the_junction():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            query = ALL | {
                "circular": True,
                "reverse_complement": True,
                "window": 40,
                "stride": 1000,
            }
            body = ">short\nACG\n" + FASTA
            short, *got = rows(await post(client, body, CHANNEL, **query))
            assert short["error"].startswith("too_short_for_circular")
            for row, (name, bases) in zip(got, GENOMES.items(), strict=True):
                length = len(bases)
                positions = [(length - 6 - i) % length for i in range(40)]
                assert row["position_ids"] == positions
                levels = LEVELS[name] if name != "two" else [0.0] * length
                assert row["het_values"] == [levels[position] for position in positions]

    run(scenario)


def test_a_refused_record_is_one_row_without_lists():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            body = ">short\nACG\n>long\nACGTACGT\n>empty\n\n"
            query = ALL | {"circular": True, "add_cls": True}
            short, *long, empty = rows(await post(client, body, "long\t0\t1\n", **query))
            for row, name in ((short, "short"), (empty, "empty")):
                assert row["name"] == name
                assert row["error"].startswith("too_short_for_circular")
                for column in ("input_ids", "attention_mask", "position_ids", "het_values"):
                    assert row[column] is None
            assert [row["start"] for row in long] == [0, 5]
            assert all(len(row["het_values"]) == 9 for row in long)

    run(scenario)


def test_the_channel_has_the_name_that_is_chosen():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            got = rows(await post(client, channel="one\t0\t0.5\n", channel_name="levels"))
            assert got[0]["levels"] == [0.5, *[0.0] * 7]
            assert "het_values" not in got[0]

    run(scenario)


REFUSED = [
    ({"junction": "prepend"}, None, "/junction"),
    ({"junction": "middle", "circular": True}, None, "/junction"),
    ({"padding": "longest"}, None, "/padding"),
    ({"vocabulary": "evo_bytes", "add_cls": True}, None, "/add_cls"),
    ({"vocabulary": "gpt2", "padding": "window"}, None, "/vocabulary"),
    ({"circular": True, "max_length": 5}, None, "/max_length"),
    ({"add_special_tokens": True}, None, "/add_special_tokens"),
    ({"channel_name": "levels"}, None, "/channel_name"),
    ({"channel_name": "start"}, "one\t0\t1\n", "/channel_name"),
    ({"channel_name": "a b"}, "one\t0\t1\n", "/channel_name"),
    ({}, "one\t0\n", "/channel"),
    ({}, "one\t28\t1\n", "/channel"),
    ({}, "three\t0\t1\n", "/channel"),
]


@pytest.mark.parametrize(("query", "channel", "where"), REFUSED)
def test_an_option_that_does_not_fit_is_named(query, channel, where):
    async def scenario():
        async with serving(ENGINE) as (client, service):
            answer = await post(client, channel=channel, **query)
            if answer.status_code == 200:  # Known only behind the first answer.
                last = rows(answer)[-1]
                assert last["error"].startswith("invalid_request: ")
                assert where in last["error"]
            else:
                assert (answer.status_code, answer.json()["where"]) == (422, where), answer.text
            assert service.streams.num_streams == 0

    run(scenario)


@pytest.mark.parametrize(
    "option",
    [
        {"stride": "5"},
        {"junction": "append"},
        {"add_cls": "true"},
        {"padding": "window"},
        {"return_positions": "true"},
    ],
)
def test_options_of_windows_need_a_window(option):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            query = {"vocabulary": "mtdna6"} | option
            answer = await client.post("/v1/encode/fasta", params=query, content=FASTA.encode())
            (name,) = option
            assert (answer.status_code, answer.json()["where"]) == (422, f"/{name}")

    run(scenario)


def form(*parts: tuple[str, str | bytes], end: str = "--x--\r\n") -> bytes:
    made = b""
    for name, content in parts:
        head = f'Content-Disposition: form-data; name="{name}"; filename="f"'
        data = content.encode() if isinstance(content, str) else content
        made += f"--x\r\n{head}\r\n\r\n".encode() + data + b"\r\n"
    return made + end.encode()


LEVEL = ("channel", "one\t0\t1\n")
SEQUENCES = ("sequences", ">one\nACGTACGT\n")
FORMS = [
    (form(SEQUENCES, LEVEL), 422, "/channel"),
    (form(SEQUENCES), 422, "/channel"),
    (form(LEVEL), 422, "/sequences"),
    (form(LEVEL, LEVEL, SEQUENCES), 422, "/channel"),
    (form(LEVEL, SEQUENCES, SEQUENCES), 422, "/sequences"),
    (form(("other", "1"), SEQUENCES), 422, "Content-Disposition"),
    (form(LEVEL, SEQUENCES, end=""), 400, ""),
    (b"no form", 400, ""),
    (form(("channel", "#" * 2000), SEQUENCES), 413, "/channel"),
    (form(LEVEL, ("sequences", "ACGT")), 400, "line 1"),
]


@pytest.mark.parametrize(("body", "status", "where"), FORMS)
def test_a_form_with_other_parts_is_refused(body, status, where):
    async def scenario():
        async with serving(ENGINE, max_body_bytes=1024) as (client, service):
            headers = {"content-type": "multipart/form-data; boundary=x"}
            answer = await client.post(
                "/v1/encode/fasta", params=QUERY, content=body, headers=headers
            )
            assert (answer.status_code, answer.json()["where"]) == (status, where), answer.text
            assert service.streams.num_streams == 0
            headers["content-type"] = "multipart/form-data"
            answer = await client.post(
                "/v1/encode/fasta", params=QUERY, content=body, headers=headers
            )
            assert (answer.status_code, answer.json()["where"]) == (400, "Content-Type")

    run(scenario)


PACKED = gzip.compress(SEQUENCES[1].encode(), mtime=0)


@pytest.mark.parametrize(
    "packed",
    [
        PACKED,
        gzip.compress(b">one\nACG", mtime=0) + gzip.compress(b"TACGT\n", mtime=0),
        zstd.compress(SEQUENCES[1].encode()),
    ],
)
@pytest.mark.parametrize("num_bytes", [1, 1 << 16])
def test_packed_sequences_in_a_form_are_unpacked(packed, num_bytes):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answers = []
            for sequences in (SEQUENCES, ("sequences", packed)):
                body = form(LEVEL, sequences)

                async def pieces(body=body):
                    for begin in range(0, len(body), num_bytes):
                        yield body[begin : begin + num_bytes]

                headers = {"content-type": "multipart/form-data; boundary=x"}
                answer = await client.post(
                    "/v1/encode/fasta", params=QUERY, content=pieces(), headers=headers
                )
                assert answer.status_code == 200, answer.text
                answers.append(answer.content)
            assert answers[0] == answers[1]

    run(scenario)


@pytest.mark.parametrize(
    ("packed", "detail"),
    [
        (PACKED[:-4], "the gzip body is incomplete"),
        (PACKED[:-8] + b"damaged!", "the body is not gzip"),
        (PACKED + b"more", "other bytes follow the end of the gzip data"),
        (gzip.compress(PACKED, mtime=0), "the body is compressed by gzip; decompress it"),
        (b"BZh91AY&SY", "the body is compressed by bzip2; decompress it"),
        (b"", None),
    ],
)
def test_damaged_packed_sequences_in_a_form_are_refused(packed, detail):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.post(
                "/v1/encode/fasta",
                params=QUERY,
                content=form(("channel", ""), ("sequences", packed)),
                headers={"content-type": "multipart/form-data; boundary=x"},
            )
            if detail is None:
                assert answer.status_code == 200
            else:
                assert (answer.status_code, answer.json()["code"]) == (400, "bad_body")
                assert detail in answer.json()["detail"]
                if detail.startswith(("the gzip", "other", "the body is not")):
                    assert answer.json()["where"] == "/sequences"

    run(scenario)


def test_a_channel_without_windows_is_refused():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await client.post(
                "/v1/encode/fasta",
                params={"vocabulary": "mtdna6"},
                content=form(LEVEL, SEQUENCES),
                headers={"content-type": "multipart/form-data; boundary=x"},
            )
            assert (answer.status_code, answer.json()["where"]) == (422, "/channel")

    run(scenario)
