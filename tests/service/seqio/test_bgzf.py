"""BGZF that was cut between two blocks: noticed in files and bodies, however it comes."""

from __future__ import annotations

import gzip
import logging
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engines.cpu.engine import CpuEngine
from service.seqio.bgzf import BgzfChecker
from service.seqio.reader import BadRecords, read_batches
from tests.support.app_client import serving
from tests.support.inputs.bgzf_files import END, block_gzip, blocks
from tests.support.waiting import run

FASTA = b">one\nACGT\nNNAC\n>two\nGG\n"
FASTQ = b"@r1\nACGT\n+\nIIII\n@r2\nNN\n+\nII\n"
WARNING = "reads may be missing"


def is_cut(pieces: list[bytes]) -> bool:
    watched = BgzfChecker()
    for piece in pieces:
        watched.add(piece)
    try:
        watched.check_end(b">")
    except EOFError:
        return True
    return False


@given(st.lists(st.binary(max_size=30), max_size=5), st.lists(st.integers(0, 300), max_size=9))
def test_the_end_is_found_however_the_stream_is_cut_into_pieces(contents, places):
    stream = b"".join(block for content in contents for block in blocks(content, 9))
    borders = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(borders)]
    assert is_cut(pieces) == bool(stream)
    assert not is_cut([*pieces, END])
    assert not is_cut([*pieces, gzip.compress(b"more")])


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        END,
        gzip.compress(FASTA, mtime=0),  # Else its id would tell the time.
        block_gzip(FASTA) + block_gzip(FASTA),
        b"".join(blocks(FASTA, 7))[:-1],  # Inside a block, which gzip itself notices.
        b"".join(blocks(FASTA, 7)) + END[:5],
        END[:16] + b"\x05\x00" + END[18:],  # A size that no block has.
    ],
)
def test_what_is_no_cut_between_blocks(stream):
    assert not is_cut([stream])


@pytest.mark.parametrize("reading", ["auto", "sequences", "whole", "lines"])
def test_a_file_cut_between_two_blocks_is_refused(tmp_path: Path, reading) -> None:
    path, packed = tmp_path / "x.fa.gz", blocks(FASTA, 7)
    path.write_bytes(b"".join([*packed, END]))
    assert list(read_batches([str(path)], reading))
    for num_blocks in range(1, len(packed) + 1):
        path.write_bytes(b"".join(packed[:num_blocks]))
        with pytest.raises(BadRecords, match=r"x\.fa\.gz: damaged gzip: .*marks its end"):
            list(read_batches([str(path)], reading))


def test_whole_fastq_without_the_mark_is_read_with_a_warning(tmp_path: Path, caplog) -> None:
    path = tmp_path / "x.fq.gz"
    path.write_bytes(b"".join(blocks(FASTQ, 7)))
    with caplog.at_level(logging.WARNING):
        ((names, _),) = read_batches([str(path)])
    assert names == ["r1", "r2"]
    assert [(str(path) in each, WARNING in each) for each in caplog.messages] == [(True, True)]
    path.write_bytes(b"".join(blocks(FASTQ, 7)[:-1]))
    with pytest.raises(BadRecords, match="record 2"):
        list(read_batches([str(path)]))


@pytest.mark.parametrize(
    ("body", "status", "num_warnings"),
    [
        (block_gzip(FASTA), 200, 0),
        (b"".join(blocks(FASTA, 7)), 400, 0),
        (b"".join(blocks(FASTA, 7)[:2]), 400, 0),
        (b"".join(blocks(FASTQ, 7)), 200, 1),
    ],
)
def test_bodies(body, status, num_warnings, caplog):
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            query, headers = {"vocabulary": "hyenadna"}, {"content-encoding": "gzip"}
            answer = await client.post(
                "/v1/encode/fasta", params=query, content=body, headers=headers
            )
            assert answer.status_code == status
            if status == 400:
                assert answer.json()["where"] == "Content-Encoding"
                assert "marks its end" in answer.json()["detail"]

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert sum(WARNING in message for message in caplog.messages) == num_warnings
