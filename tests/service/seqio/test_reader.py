"""Sequences out of files in batches: all records, in order, and errors with their place."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.seqio.fastq import BUFFER_BYTES, RecordTooLong, read_fastq
from service.seqio.reader import BadRecords, read_batches, read_records
from service.seqio.sequence_checks import BadRecord
from tests.support.data_files import DATA, records
from tests.support.inputs.bgzf_files import block_gzip

FASTA = b">one first of all\nACGT\nNNAC\r\n\n>two\n>three\nTT\n"
FASTQ = b"@r1 x\nACGT\n+\nIIII\n@r2\nNN\n+r2\nII\n"


def rows_of(path: Path, **limits: Any) -> list[list[tuple[str, bytes]]]:
    return [
        [(name, batch.row_bytes(row)) for row, name in enumerate(names)]
        for names, batch in read_batches([str(path)], **limits)
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, block_gzip])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (FASTA, [("one", b"ACGTNNAC"), ("two", b""), ("three", b"TT")]),
        (FASTQ, [("r1", b"ACGT"), ("r2", b"NN")]),
        (b"", []),
    ],
)
def test_records_of_packed_and_plain_files(
    tmp_path: Path, pack: object, content: bytes, expected: list[tuple[str, bytes]]
) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(content))  # type: ignore[operator]
    assert rows_of(path) == ([expected] if expected else [])
    assert [tuple(record) for record in read_records([str(path)], "auto")] == expected


@pytest.mark.parametrize(
    "name",
    [
        "dna/mirgenedb_2.1_ALL-pre.fa.gz",
        "dna/mtdna_haplogrep3_example_wgs.fa.gz",
        "dna/reads_lambda_with_N.fastq.gz",
        "dna/lambda_NC_001416.fa",
    ],
)
def test_real_files_are_read_whole(name: str) -> None:
    expected = records(name)
    read = [
        batch.row_bytes(row).decode()
        for names, batch in read_batches([str(DATA / name)], max_bytes=10_000)
        for row in range(len(names))
    ]
    assert read == expected


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=30),
    max_bytes=st.integers(1, 60),
    max_records=st.integers(1, 9),
)
def test_batches_are_bounded_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], max_bytes: int, max_records: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "bounded.fa"
    path.write_text("".join(f">{i}\n{'A' * length}\n" for i, length in enumerate(lengths)))
    made = rows_of(path, max_bytes=max_bytes, max_records=max_records)
    assert [*itertools.chain(*made)] == [
        (str(i), b"A" * length) for i, length in enumerate(lengths)
    ]
    for rows, following in zip(made, [*made[1:], []], strict=True):
        size = sum(len(data) for _, data in rows)
        assert len(rows) <= max_records
        assert size <= max_bytes or len(rows) == 1
        if following:  # And none is smaller than it must be.
            assert len(rows) == max_records or size + len(following[0][1]) > max_bytes


def test_files_follow_each_other(tmp_path: Path) -> None:
    for name, content in (("a", FASTA), ("b", gzip.compress(FASTQ)), ("c", b"just text")):
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in "abc"]
    assert [names for names, _ in read_batches(paths)] == [
        *(["one", "two", "three"], ["r1", "r2"], [paths[2]])
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (FASTQ + b"@r3\nACGT\n+\nII\n", "line 12: Length .* differ .record 3"),
        (FASTQ + b"@r3\nACGT\nIIII\n@r4\n", "line 11: .*record 3"),
        (FASTQ + b"@r3\nACGT\n", "record 3"),
        (FASTQ + b"r3\nA\n+\nI\n", "line 9: .*record 3"),
        (FASTQ + b"\n" + FASTQ, "line 9: .*record 3"),
        (FASTQ + b"@r3\nA\n+\n\n\n", "line 12: .*record 3"),
        (FASTQ + "@r3 \u03b2\nA\n+\nI\n".encode(), "record 1 or behind it"),
        (FASTA[:-1] + b">four\nAC\n", "'>' inside a line.*record 3"),
        (b">one\nAC\n;a comment\nGT\n", "';'.*record 1"),
        (b">one\nAC\n+\nII\n", "'[+]'; is it FASTQ.*record 1"),
        (FASTA + bytes(9), "the byte 0x00 .record 3"),
        (FASTA + b"\x1a", "the byte 0x1a .record 3"),
        (FASTA.decode().encode("utf-16-le"), "the byte 0x00 .record 1"),
        (gzip.compress(FASTA, mtime=0) + b"garbage behind it", "damaged gzip: Not a gzipped file"),
        (FASTA + b">four\n\xff\n", "a sequence is not ASCII .record 4"),
        (gzip.compress(FASTA, mtime=0)[:-9], "ended before the end-of-stream"),
        (gzip.compress(FASTA, mtime=0)[:-8] + bytes(8), "CRC"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "wrong.x"
    path.write_bytes(content)
    with pytest.raises(BadRecords, match=rf"wrong\.x: .*{message}"):
        rows_of(path)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"@r3\nA\n+\n+\n", b"@r3\n\n+\n\n", b"@r3\n\n+r3\n\n"])
@pytest.mark.parametrize("size", [1, 2, 7, 1 << 17])
def test_fastq_may_end_with_blank_lines(last: bytes, line_end: bytes, size: int) -> None:
    for num_blank in (0, 1, 2, 3, 4, 5, 9):
        content = (FASTQ + last + b"\n" * num_blank).replace(b"\n", line_end)
        file = mock.Mock(wraps=io.BytesIO(content))
        file.read = lambda num, read=file.read: read(min(num, size))
        found = [tuple(record) for record in read_fastq(file)]
        assert found == [("r1", "ACGT"), ("r2", "NN"), ("r3", "A" if b"A" in last else "")]


@pytest.mark.parametrize(
    ("content", "message"), [(FASTQ, "line 9"), (b"@w\nA\nC\n+\nII\n", "start with '@'")]
)
def test_blank_lines_without_end_are_refused(content: bytes, message: str) -> None:
    pieces = itertools.chain([content], itertools.repeat(b"\n" * 1000))
    file = mock.Mock(read=lambda num: next(pieces)[:num], readline=lambda: b"\n")
    with pytest.raises(BadRecord, match=message):
        list(read_fastq(file))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"@secret (2)\nGATTACA\n+\n", "Premature end of file encountered"),
        (b"@x\nGATTACA\n+secret\nIIIIIII\n", "Sequence descriptions don't match"),
    ],
)
def test_a_refusal_does_not_repeat_the_record(content: bytes, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason) as caught:
        list(read_fastq(io.BytesIO(content)))
    assert "GATT" not in str(caught.value) and "secret" not in str(caught.value)


@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    width=st.integers(1, 300),
    first_wrapped=st.integers(0, 40),
    line_end=st.sampled_from([b"\n", b"\r\n"]),
    num_blank=st.integers(0, 3),
    size=st.sampled_from([1, 50, BUFFER_BYTES]),
    repeats_title=st.booleans(),
)
def test_fastq_over_several_lines(
    lengths: list[int],
    width: int,
    first_wrapped: int,
    line_end: bytes,
    num_blank: int,
    size: int,
    repeats_title: bool,
) -> None:
    """A line of qualities may begin with "@" or "+", and a record of one line stand anywhere."""
    records = []
    content = b""
    for number, length in enumerate(lengths):
        sequence = ("ACGTN" * 60)[:length]
        columns = width if number >= first_wrapped else length + 1
        lines = [sequence[i : i + columns] for i in range(0, length, columns)] or [""]
        qualities = ["@+I"[i % 3] * len(line) for i, line in enumerate(lines)]
        plus = f"+r{number} x" if repeats_title else "+"
        content += "\n".join([f"@r{number} x", *lines, plus, *qualities, ""]).encode()
        records.append((f"r{number}", sequence))
    content = content.replace(b"\n", line_end) + line_end * num_blank
    file = io.BytesIO(content)
    slow = mock.Mock(wraps=file)
    slow.read = lambda num: file.read(min(num, size))
    assert [tuple(record) for record in read_fastq(slow)] == records


@pytest.mark.parametrize("num_bases", [100, BUFFER_BYTES, 3 * BUFFER_BYTES])
@pytest.mark.parametrize("num_before", [0, 1, 2, 5])
def test_fastq_over_several_lines_behind_long_records(num_bases: int, num_before: int) -> None:
    long = b"@long\n" + b"A" * num_bases + b"\n+\n" + b"I" * num_bases + b"\n"
    content = FASTQ + long * num_before + b"@w\nAC\nG\n+\nI\n@I\n" + long
    read = list(read_fastq(io.BytesIO(content)))
    expected = ["ACGT", "NN", *["A" * num_bases] * num_before, "ACG", "A" * num_bases]
    assert [sequence for _, sequence in read] == expected


@pytest.mark.parametrize(
    ("behind", "message"),
    [
        (b"@b\nAC\n+\nIII\n", "line 17: Length .*record 4"),
        (b"@b\nAC\nGT\n+\nIII\n", "line 19: .*qualities are missing.*record 4"),
        (b"@b\nAC\nGT\n", "line 17: .*'[+]'.*record 4"),
        (b"@b\nAC\n@c\nGT\n", "line 16: .*'[+]'.*record 4"),
        (b"@b\nAC\nGT\n+c\nIIII\n", "line 17: .*descriptions.*record 4"),
        (b"\n@b\nAC\n+\nII\n", "line 15: .*'@'.*record 4"),
        (b"@b\n\xff\nGT\n+\nII\n", "Non-ASCII.*record 1 or behind it"),
        (b"@b\nA;\n+\nII\n", "the sequence has ';'.*record 4"),
    ],
)
def test_what_is_wrong_behind_wrapped_fastq_is_named(
    tmp_path: Path, behind: bytes, message: str
) -> None:
    (path := tmp_path / "x.fq").write_bytes(FASTQ + b"@a\nA\nC\n+\nII\n" + behind)
    with pytest.raises(BadRecords, match=message):
        rows_of(path)


def test_fastq_over_several_lines_is_bounded() -> None:
    pieces = itertools.chain([b"@a\n"], itertools.repeat(b"ACGT\n" * 1000))
    file = mock.Mock(read=lambda num: next(pieces)[:num], readline=lambda: b"ACGT\n")
    with pytest.raises(RecordTooLong, match="at least 1000004 bytes"):
        list(read_fastq(file, 10**6))


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        (b"ACG TAC\n GGT \n", b"ACGTACGGT"),
        (b"A\tC\x0bG\x0cT\n\n\nA\n", b"ACGTA"),
        (b"acgu*\n-.~N", b"acgu*-.~N"),
        (b"AC<mask>GT<|end|>\n", b"AC<mask>GT<|end|>"),
        (b"#no bases\nAC\n", b"AC"),
    ],
)
@pytest.mark.parametrize("num_bases", [0, 9000])
def test_white_space_is_no_part_of_a_sequence(
    tmp_path: Path, sequence: bytes, expected: bytes, num_bases: int
) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(b">a\n" + b"T" * num_bases + b"\n" + sequence + b"\n>b\nGG\n")
    expected = b"T" * num_bases + expected
    assert rows_of(path) == [[("a", expected), ("b", b"GG")]]
    assert [*read_records([str(path)], "auto")] == [("a", expected), ("b", b"GG")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xef\xbb\xbf" + FASTA, "line 1 begins with '>' after a byte-order mark"),
        (b"\xef\xbb\xbf" + FASTQ, "line 1 begins with '@' after a byte-order mark"),
        (b"\n" + FASTQ, "line 2 begins with '@'"),
        (FASTA.decode().encode("utf-16"), "the file is in UTF-16"),
        (FASTA.decode().encode("utf-16-be"), "the file is in UTF-16"),
        (bz2.compress(FASTA), "the file is compressed by bzip2"),
        (lzma.compress(FASTA), "the file is compressed by xz"),
        (b"\x28\xb5\x2f\xfd\x04\x00xx", "the file is compressed by zstd"),
        (b"PK\x03\x04\x14\x00\x00\x00", "the file is compressed by zip"),
        (
            gzip.compress(gzip.compress(FASTA, mtime=0), mtime=0),
            "the file is compressed by gzip twice",
        ),
    ],
)
def test_sequences_are_not_read_as_text(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.fa.gz"
    path.write_bytes(content)
    with pytest.raises(BadRecords, match=rf"x\.fa\.gz: {message}"):
        list(read_batches([str(path)]))
    if content[:2] != b"\x1f\x8b":
        assert rows_of(path, reading="whole") == [[(str(path), content)]]


@pytest.mark.parametrize(
    "content",
    [
        b"\n> a quotation, and\n> another one\n",
        b"\n@decorated\ndef f():\n    return 1\n",
        b"; a setting\nname = value\n",
        b" " * 5000 + b"text",
        b"BZh",
    ],
)
def test_text_that_only_looks_a_little_like_sequences_is_text(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert rows_of(path) == [[(str(path), content)]]


@pytest.mark.parametrize(
    "preamble", [b"\r\n\n", b";a comment\n", b" ", b"\n;two > lines\r\n;ACGT\n\n"]
)
def test_blank_lines_and_comments_before_fasta_are_skipped(tmp_path: Path, preamble: bytes) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(FASTA)
    expected = rows_of(path)
    path.write_bytes(preamble + FASTA)
    for reading in ("auto", "sequences"):
        assert rows_of(path, reading=reading) == expected


@pytest.mark.parametrize("begin", [b"#made by hand\n", b"\xef\xbb\xbf>zero\n"])
def test_fasta_that_begins_with_something_else_is_no_list_of_sequences(
    tmp_path: Path, begin: bytes
) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(begin + FASTA)
    with pytest.raises(BadRecords, match=r"x\.fa: line . begins with '>'"):
        list(read_batches([str(path)], "sequences"))
    path.write_bytes(b"ACGT\nTT>\n")
    assert rows_of(path, reading="sequences") == [[(f"{path}:1", b"ACGT"), (f"{path}:2", b"TT>")]]


@pytest.mark.parametrize(
    ("content", "line", "sign"),
    [
        (b"ACGT\n" + FASTA, 2, ">"),
        (b"ACGT\r\nAC\r\n>b\r\nGG\r\n", 3, ">"),
        (b"ACGT\n>b\nGG", 2, ">"),
        (b"ACGT\n+\nIIII\n" + FASTQ, 4, "@"),
    ],
)
def test_a_file_that_lost_its_first_header_is_no_sequence(
    tmp_path: Path, content: bytes, line: int, sign: str
) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(content)
    with pytest.raises(
        BadRecords, match=f"x.fa: line {line} begins with '{sign}'.* header missing"
    ):
        list(read_batches([str(path)]))
    for reading in ("text", "whole"):
        assert rows_of(path, reading=reading) == [[(str(path), content)]]


def test_text_is_text_with_a_warning_where_it_could_be_sequences(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.md"
    for content, warning in (
        (b"", None),
        (b"Hello\n", None),
        (FASTA, f"{path}: begins with '>' and is read as text; --sequences reads FASTA"),
        (b"@you\n", f"{path}: begins with '@' and is read as text; --sequences reads FASTQ"),
    ):
        caplog.clear()
        path.write_bytes(content)
        assert rows_of(path, reading="text") == [[(str(path), content)]]
        assert [line.getMessage() for line in caplog.records] == [warning] * bool(warning)
    path.write_bytes(bz2.compress(b"Hello"))
    with pytest.raises(BadRecords, match="the file is compressed by bzip2"):
        list(read_batches([str(path)], "text"))


def test_batches_before_an_error_are_given_out(tmp_path: Path) -> None:
    path = tmp_path / "x.fq"
    path.write_bytes(FASTQ * 2 + b"@r3\nACGT\n")
    batches = read_batches([str(path)], max_records=2)
    assert next(batches)[0] == ["r1", "r2"]
    with pytest.raises(BadRecords, match="record 5"):
        list(batches)


def test_arguments_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    """An unknown `reading` once meant "lines", so that headers of FASTA became sequences."""
    (path := tmp_path / "a.fa").write_bytes(b">a\nACGT\n")
    with pytest.raises(ValueError, match="'foo', none of auto, text, whole, lines, sequences"):
        next(read_batches([str(path)], "foo"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_records 0; the least is 1"):
        next(read_batches([str(path)], max_records=0))
    with pytest.raises(TypeError, match="a str, not several paths"):
        next(read_batches(str(path)))
