"""Blocks of lines: the same lines, whatever the blocks, the packing and the place of the start."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from backports import zstd  # type: ignore[attr-defined,unused-ignore]

from service.corpus import inputs
from service.corpus.documents import Reject
from service.corpus.inputs import Input, InputDigest, UnreadableInput
from service.corpus.reading import line_blocks
from service.corpus.reading.line_blocks import Limits, allocate, read_line_blocks

BLOCK = 64
PACK: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": lambda data: (
        zstd.compress(data[: len(data) // 2]) + zstd.compress(data[len(data) // 2 :])
    ),
    "pzstd": lambda data: b"\x50\x2a\x4d\x18\4\0\0\0size" + zstd.compress(data),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(line_blocks, "TAIL_BYTES", 16)
    monkeypatch.setattr(inputs, "DIGEST_BYTES", BLOCK)


def make_lines(seed: int, sizes: tuple[int, ...]) -> list[bytes]:
    source = np.random.default_rng(seed)
    return [b"%d" % i + b"x" * int(source.choice(sizes)) for i in range(60)]


def read(
    folder: Path, data: bytes, packing: str, start: int = 0, max_bytes: int = 1 << 20
) -> tuple[list[tuple[int, bytes]], list[Reject], str | None]:
    """Read a file; return its lines with their places, its rejects, and its digest."""
    path = folder / "file"
    path.write_bytes(PACK[packing](data))
    file = Input(str(path), path.stat().st_size, "lines")
    limits = Limits(max_bytes, True, lambda: None, allocate)
    lines, rejects, digest = [], [], InputDigest(file.size)
    end = start
    for load in read_line_blocks(file, start, limits):
        block = load()
        place = block.begin
        for line in block.data.tobytes().splitlines(keepends=True):
            lines.append((place, line))
            place += len(line)
        assert end <= block.end
        end = block.end
        rejects += block.rejects
        digest.blocks.update(block.digests)
    return lines, rejects, digest.result()


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("sizes", [(0, 3, 10), (61, 62, 63, 64, 65), (5, 1000), (BLOCK - 3,)])
@pytest.mark.parametrize("is_ended", [True, False])
def test_all_lines_from_any_line_on(
    tmp_path: Path, packing: str, sizes: tuple[int, ...], is_ended: bool
) -> None:
    data = b"\n".join(make_lines(1, sizes)) + (b"\n" if is_ended else b"")
    expected, place = [], 0
    for line in data.splitlines(keepends=True):
        expected.append((place, line))
        place += len(line)
    lines, rejects, digest = read(tmp_path, data, packing)
    assert lines == expected
    assert rejects == []
    assert digest == expected_digest((tmp_path / "file").read_bytes())
    for start, _ in expected[::7]:
        lines, _, _ = read(tmp_path, data, packing, start)
        assert lines == [line for line in expected if line[0] >= start]


def expected_digest(data: bytes) -> str:
    blocks = [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)]
    joined = b"".join(hashlib.sha256(block).digest() for block in blocks)
    return f"sha256-8mib:{hashlib.sha256(joined).hexdigest()}"


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("num_bytes", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("sign", [b"\n", b"x"])
def test_files_of_one_sign(tmp_path: Path, packing: str, num_bytes: int, sign: bytes) -> None:
    lines, _, _ = read(tmp_path, sign * num_bytes, packing)
    assert b"".join(line for _, line in lines) == sign * num_bytes


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("position", [0, 5, 59])
def test_long_lines_are_rejected_and_the_others_read(
    tmp_path: Path, packing: str, position: int
) -> None:
    kept = make_lines(2, (3, 20, 90))
    parts = [line + b"\n" for line in kept]
    parts.insert(position, b"y" * 5000 + b"\n")
    data = b"".join(parts)
    place = sum(map(len, parts[:position]))
    lines, rejects, digest = read(tmp_path, data, packing, max_bytes=1000)
    assert [line for _, line in lines] == [line + b"\n" for line in kept]
    assert [(reject.place, reject.code) for reject in rejects] == [(place, "too_long")]
    assert digest == expected_digest((tmp_path / "file").read_bytes())


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_damaged_files_are_named(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "damaged"
    packed = PACK[packing](b"".join(line + b"\n" for line in make_lines(3, (50, 1000))))
    path.write_bytes(packed[: len(packed) - 40])
    file = Input(str(path), path.stat().st_size, "lines")
    with pytest.raises(UnreadableInput, match="damaged"):
        for load in read_line_blocks(file, 0, Limits(1 << 20, True, lambda: None, allocate)):
            load()


def test_every_damaged_byte_of_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    packed = gzip.compress(b"".join(line + b"\n" for line in make_lines(3, (5, 10))))
    for place in range(10, len(packed)):
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 4]) + packed[place + 1 :])
        file = Input(str(path), len(packed), "lines")
        with pytest.raises(UnreadableInput, match="file: "):
            for load in read_line_blocks(file, 0, Limits(1 << 20, True, lambda: None, allocate)):
                load()


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_the_last_lines_before_damage_do_not_depend_on_the_start(
    tmp_path: Path, packing: str
) -> None:
    data = b"".join(line + b"\n" for seed in range(20) for line in make_lines(seed, (5, 100)))
    path = tmp_path / "damaged"
    path.write_bytes(PACK[packing](data)[:-9])
    file = Input(str(path), path.stat().st_size, "lines")

    def read_until_damage(start: int) -> tuple[list[int], int]:
        places, end = [], start
        with pytest.raises(UnreadableInput):
            for load in read_line_blocks(file, start, Limits(80, True, lambda: None, allocate)):
                block = load()
                places += [block.begin + place for place in np.flatnonzero(block.data == 10)]
                places += [reject.place for reject in block.rejects]
                end = block.end
        return sorted(places), end

    places, end = read_until_damage(0)
    assert len(places) > 300
    for place in [*places[:-1:97], places[-2]]:
        start = data.index(b"\n", place) + 1
        assert read_until_damage(start) == ([place for place in places if place >= start], end)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_the_lines_before_damage_are_read(
    tmp_path: Path, packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 1 << 20)
    monkeypatch.setattr(line_blocks, "STREAM_BYTES", 1000)
    numbers = np.random.default_rng(1).integers(0, 1 << 60, 20_000)
    data = b"".join(b"%d\n" % number for number in numbers)
    path = tmp_path / "damaged"
    path.write_bytes(PACK[packing](data)[:-1000])
    file = Input(str(path), path.stat().st_size, "lines")
    found = b""
    with pytest.raises(UnreadableInput):
        for load in read_line_blocks(file, 0, Limits(1 << 20, True, lambda: None, allocate)):
            found += load().data.tobytes()
    assert data.startswith(found)
    assert found.endswith(b"\n")
    assert len(found) > 0.5 * len(data)


def test_a_file_that_shrank_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\n" * 100)
    file = Input(str(path), 200, "lines")
    blocks = list(read_line_blocks(file, 0, Limits(1 << 20, True, lambda: None, allocate)))
    path.write_bytes(b"a\n" * 10)
    with pytest.raises(UnreadableInput, match="shorter"):
        for load in blocks:
            load()


@pytest.mark.parametrize("packing", PACK)
def test_lines_behind_a_long_one_are_read(tmp_path: Path, packing: str) -> None:
    data = b"y" * 500 + b"\n a\n b\n c\n" + b"z" * 500 + b"\n last\n"
    lines, rejects, _ = read(tmp_path, data, packing, max_bytes=100)
    assert [line for _, line in lines if line.strip()] == [b" a\n", b" b\n", b" c\n", b" last\n"]
    assert [reject.place for reject in rejects] == [0, data.index(b"z")]


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("is_ended", [True, False])
def test_a_line_is_too_long_wherever_its_block_begins(
    tmp_path: Path, packing: str, is_ended: bool
) -> None:
    for num_before in range(BLOCK):
        data = b"a" * num_before + b"\n" + b"b" * 51 + b"\n" + b"c" * 50 + b"\n" * is_ended
        place = num_before + 1
        expected = [(place, "too_long")]
        for start in (0, place):
            lines, rejects, _ = read(tmp_path, data, packing, start, max_bytes=50)
            long = [(0, "too_long")] if num_before > 50 and not start else []
            assert [(reject.place, reject.code) for reject in rejects] == long + expected
            assert lines[-1] == (place + 52, b"c" * 50 + b"\n" * is_ended)
            assert not any(b"b" in line for _, line in lines)
