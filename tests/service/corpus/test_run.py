"""Whole jobs: Megatron's bytes, the same after any interruption, and what is refused."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from service.corpus import inputs as corpus_inputs
from service.corpus.encoding import encoder, verification
from service.corpus.encoding.verification import DiffersFromReference, Verifier
from service.corpus.inputs import UnreadableInput, find_inputs
from service.corpus.job import Job
from service.corpus.parts import checkpoint as checkpoints
from service.corpus.parts.checkpoint import Checkpoint, Cursor, OtherJob
from service.corpus.parts.locks import locked
from service.corpus.parts.part import PartResult
from service.corpus.parts.progress import Progress
from service.corpus.reading import line_blocks
from service.corpus.run import run_job
from service.corpus.runners.threads import ThreadRunner
from service.corpus.writing.shard_files import PartialFile
from service.engines.cpu.engine import CpuEngine
from tests.support.inputs.bgzf_files import block_gzip
from tests.support.inputs.corpora import folder_bytes, make_texts, megatron_bytes, write_jsonl
from vocabularies import builtin
from vocabularies.batch.batch import Batch, EncodeOptions

EOD = 50256
VOCABULARY = builtin.load("gpt2")
ENGINE = CpuEngine(num_threads=1)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(corpus_inputs, "DIGEST_BYTES", 4096)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three files of documents, of which one is packed and one is empty."""
    texts = make_texts(120)
    first = write_jsonl(tmp_path / "first.jsonl", texts[:80])
    empty = write_jsonl(tmp_path / "empty.jsonl", [])
    last = write_jsonl(tmp_path / "last.jsonl", texts[80:])
    packed = tmp_path / "last.jsonl.gz"
    packed.write_bytes(gzip.compress(last.read_bytes()))
    last.unlink()
    return [first, empty, packed]


def make_job(files: list[Path], **options: Any) -> Job:
    found, faults = find_inputs([str(path) for path in files], None)
    assert faults == [] or options.get("skips_unreadable")
    return Job(tuple(found), VOCABULARY.digest, end_id=EOD, **options)


def run(job: Job, folder: Path, num_threads: int = 2, **options: Any) -> dict[str, Any]:
    running = ThreadRunner(ENGINE, num_threads, Progress(1, None), options.pop("num_verified", 0))
    return run_job(job, VOCABULARY, folder, running, **options)


def read_rejects(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "rejects_00000.jsonl").read_bytes().splitlines()
    return [orjson.loads(line) for line in lines]


def expected_rows(texts: list[str]) -> list[list[int]]:
    encoded = ENGINE.encode(VOCABULARY, Batch(texts, options=EncodeOptions(False)))
    rows = [encoded.row(row).tolist() for row in range(len(texts))]
    return [[*row, EOD] if row else [] for row in rows]


def test_shards_are_megatrons(files: list[Path], tmp_path: Path) -> None:
    rows = expected_rows(make_texts(120))
    manifest = run(make_job(files), tmp_path / "out", num_verified=10)
    data, index = megatron_bytes(rows, is_narrow=True)
    assert (tmp_path / "out" / "shard_00000_00000.bin").read_bytes() == data
    assert (tmp_path / "out" / "shard_00000_00000.idx").read_bytes() == index
    assert (manifest["documents"], manifest["tokens"]) == (120, sum(map(len, rows)))
    assert all(file["digest"] for file in manifest["inputs"])
    assert sorted(folder_bytes(tmp_path / "out")) == [
        "manifest.json",
        "shard_00000_00000.bin",
        "shard_00000_00000.idx",
    ]


def test_a_shard_ends_before_the_row_that_is_too_much(files: list[Path], tmp_path: Path) -> None:
    shards: list[list[list[int]]] = [[]]
    for row in expected_rows(make_texts(120)):
        if shards[-1] and sum(map(len, shards[-1])) + len(row) > 100:
            shards.append([])
        shards[-1].append(row)
    manifest = run(make_job(files, shard_tokens=100), tmp_path / "out")
    assert [shard["documents"] for shard in manifest["shards"]] == [*map(len, shards)]
    for number, rows in enumerate(shards):
        data, index = megatron_bytes(rows, is_narrow=True)
        assert (tmp_path / "out" / f"shard_00000_{number:05d}.bin").read_bytes() == data
        assert (tmp_path / "out" / f"shard_00000_{number:05d}.idx").read_bytes() == index


def test_packed_rows(files: list[Path], tmp_path: Path) -> None:
    ids = [token_id for row in expected_rows(make_texts(120)) for token_id in row]
    manifest = run(make_job(files, pack=64, shard_tokens=1000), tmp_path / "out")
    parts = [
        np.fromfile(tmp_path / "out" / f"shard_00000_{number:05d}.bin", np.uint16)
        for number in range(len(manifest["shards"]))
    ]
    assert [len(part) for part in parts[:-1]] == [960] * (len(parts) - 1)
    assert np.concatenate(parts).tolist() == ids[: len(ids) // 64 * 64]
    assert manifest["dropped_tokens"] == len(ids) % 64


class Interrupted(Exception):
    """The run ends here."""


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give a function after which so many writes succeed, and then one fails."""
    write = PartialFile.write
    left = [1 << 30]

    def failing(self: PartialFile, data: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Interrupted
        write(self, data)

    monkeypatch.setattr(PartialFile, "write", failing)
    yield lambda count: left.__setitem__(0, count)


CHAT = (
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %} and"
    " {{ m.role }}{% endfor %}"
)
OPTIONS: list[dict[str, Any]] = [
    {"shard_tokens": 300},
    {"shard_tokens": 700, "pack": 128},
    {"shard_tokens": 300, "num_parts": 3},
    {"shard_tokens": 200, "special": "refuse"},
    {"shard_tokens": 700, "shuffle": 3},
    {"shard_tokens": 700, "format": "parquet"},
    {"shard_tokens": 150, "max_document_bytes": 90},
    {"shard_tokens": 500, "format": "datatrove", "chat_template": CHAT, "has_mask": True},
]


def make_chat(line: bytes) -> bytes:
    """Make a line with a chat of one message of a line with a text; leave any other."""
    if b'"text"' not in line or line.count(b"\n") > 1:
        return line
    message = {"role": "assistant", "content": orjson.loads(line)["text"]}
    return orjson.dumps({"text": [message]}) + b"\n"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_interrupted_job_ends_with_the_same_bytes(
    files: list[Path], tmp_path: Path, interrupt_after: Any, options: dict[str, Any]
) -> None:
    lines = files[0].read_bytes().splitlines(keepends=True)
    for place in (0, 20, 21, 60, 75):
        lines.insert(place, b'{"text": "<|endoftext|>"}\n{"no text": 1}\n')
    if "chat_template" in options:
        lines = [make_chat(line) for line in lines]
    files[0].write_bytes(b"".join(lines))
    long = b'{"text": "%s"}\n' % (b"long " * 2000)
    files[2].write_bytes(gzip.compress(long + gzip.decompress(files[2].read_bytes())))
    job = make_job(files, **options)
    run(job, tmp_path / "whole", num_threads=1)
    source = np.random.default_rng(5)
    num_interruptions = 0
    for _ in range(200):
        interrupt_after(int(source.integers(0, 12)))
        try:
            run(job, tmp_path / "cut", num_threads=int(source.integers(1, 4)))
            break
        except Interrupted:
            num_interruptions += 1
            assert not list((tmp_path / "cut").glob(".*.partial"))
    assert num_interruptions > 3
    interrupt_after(1 << 30)
    run(job, tmp_path / "cut")
    assert folder_bytes(tmp_path / "cut") == folder_bytes(tmp_path / "whole")


def test_no_partial_file_of_a_lost_node_stays(files: list[Path], tmp_path: Path) -> None:
    job, out = make_job(files), tmp_path / "out"
    own = ThreadRunner(ENGINE, 1, Progress(1, None))

    class Lossy:
        """Runs the parts after a node was killed in the middle of a file."""

        def run_parts(self, *arguments: Any) -> list[PartResult]:
            (out / ".lost.partial").write_bytes(b"half")
            return own.run_parts(*arguments)

    run_job(job, VOCABULARY, out, Lossy())
    run(job, tmp_path / "whole")
    assert folder_bytes(out) == folder_bytes(tmp_path / "whole")


def test_documents_of_too_many_ids_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "MAX_DOCUMENT_IDS", 5)
    path = write_jsonl(tmp_path / "a.jsonl", ["a b c d", "a b c d e", "", "a " * 9, "a"])
    manifest = run(make_job([path]), tmp_path / "out")
    messages = [(r["code"], r["message"]) for r in read_rejects(tmp_path / "out")]
    reason = "ids; a document has at most 4"  # The end token is the fifth.
    assert messages == [("too_long", f"5 {reason}"), ("too_long", f"10 {reason}")]
    assert (manifest["documents"], manifest["tokens"]) == (3, 5 + 0 + 2)


def test_rejects_have_place_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [b'{"text": "good"}', b"{", b'{"text": null}', b'{"text": "\xff"}', b'{"text": "x"}']
    path.write_bytes(b"\n".join(lines))
    manifest = run(make_job([path]), tmp_path / "out")
    rejects = read_rejects(tmp_path / "out")
    data = path.read_bytes()
    assert [(r["code"], data[r["place"] :].split(b"\n")[0]) for r in rejects] == [
        ("invalid_json", lines[1]),
        ("not_text", lines[2]),
        ("not_utf8", lines[3]),
    ]
    assert {(r["path"], r["unit"]) for r in rejects} == {(str(path), "byte")}
    assert (manifest["documents"], manifest["rejects"]) == (2, 3)
    assert run(make_job([path]), tmp_path / "out") == manifest
    assert (tmp_path / "out" / "rejects_00000.jsonl").exists()


def test_a_folder_keeps_other_jobs_and_other_runs_out(files: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = make_job(files)
    manifest = run(job, out)
    assert run(job, out) == manifest
    other = replace(job, end_id=None)
    with pytest.raises(OtherJob, match="--fresh"):
        run(other, out)
    (out / "mine.txt").write_text("kept")
    run(other, out, is_fresh=True)
    assert (out / "mine.txt").read_text() == "kept"
    with locked(out), pytest.raises(OtherJob, match="another run"):
        run(job, out)


def test_a_job_that_is_not_finished_keeps_others_out(
    files: list[Path], tmp_path: Path, interrupt_after: Any
) -> None:
    job = make_job(files, shard_tokens=100)
    interrupt_after(20)
    with pytest.raises(Interrupted):
        run(job, tmp_path / "out")
    with pytest.raises(OtherJob, match="an unfinished job"):
        run(replace(job, end_id=None), tmp_path / "out")


def test_a_checkpoint_of_a_later_part_keeps_others_out(files: list[Path], tmp_path: Path) -> None:
    job, out = make_job(files, shard_tokens=100), tmp_path / "out"
    out.mkdir()
    checkpoints.save(out, 2, replace(job, num_parts=3).fingerprint(), Checkpoint(Cursor(2)))
    for num_parts in (1, 2, 4):
        with pytest.raises(OtherJob, match="an unfinished job"):
            run(replace(job, num_parts=num_parts), out)
    assert not list(out.glob("shard_*"))


def test_rejects_of_a_run_before_its_first_checkpoint_are_removed(
    files: list[Path], tmp_path: Path
) -> None:
    job, out = make_job(files), tmp_path / "out"
    out.mkdir()
    (out / "rejects_00002.jsonl").write_bytes(b"{}\n")  # Of a job of three parts.
    run(job, out)
    run(job, tmp_path / "whole")
    assert folder_bytes(out) == folder_bytes(tmp_path / "whole")


def test_a_job_of_another_version_is_refused_by_name(
    files: list[Path], tmp_path: Path, interrupt_after: Any
) -> None:
    job = make_job(files, shard_tokens=100)
    for name, writes in (("manifest.json", 1 << 30), ("part_00000.checkpoint", 20)):
        path = tmp_path / name / name
        interrupt_after(writes)
        with suppress(Interrupted):
            run(job, path.parent)
        older = orjson.loads(path.read_bytes())
        del older["format_version"]  # As version 1 had none.
        path.write_bytes(orjson.dumps(older))
        interrupt_after(1 << 30)
        with pytest.raises(
            OtherJob, match=f"{name} was written by another version of warptok.*--fresh"
        ):
            run(job, path.parent)
        run(job, path.parent, is_fresh=True)
    assert folder_bytes(tmp_path / "manifest.json") == folder_bytes(path.parent)


def test_a_manifest_of_another_program_stays(files: list[Path], tmp_path: Path) -> None:
    for content in (b"{}", b"[1]", b"no JSON"):
        (tmp_path / "manifest.json").write_bytes(content)
        for is_fresh in (False, True):
            with pytest.raises(OtherJob, match="was not written by warptok corpus"):
                run(make_job(files), tmp_path, is_fresh=is_fresh)
        assert (tmp_path / "manifest.json").read_bytes() == content


def test_a_damaged_file_stops_the_job_or_is_left_out(files: list[Path], tmp_path: Path) -> None:
    packed = files[2].read_bytes()
    files[2].write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UnreadableInput, match="damaged"):
        run(make_job(files), tmp_path / "out")
    manifest = run(make_job(files, skips_unreadable=True), tmp_path / "skipped")
    assert 80 <= manifest["documents"] < 120
    assert manifest["inputs"][2]["digest"] is None
    assert [reject["code"] for reject in read_rejects(tmp_path / "skipped")] == ["unreadable"]


def test_a_text_that_was_cut_off_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(block_gzip(b"whole text"))
    assert run(make_job([path]), tmp_path / "whole")["documents"] == 1
    path.write_bytes(path.read_bytes()[:-28])
    with pytest.raises(UnreadableInput, match="cut off"):
        run(make_job([path]), tmp_path / "out")


def test_a_missing_file_among_many_is_left_out(tmp_path: Path) -> None:
    paths = [write_jsonl(tmp_path / f"{i}.jsonl", ["text"]) for i in range(30)]
    paths[13].unlink()
    manifest = run(make_job(paths, skips_unreadable=True), tmp_path / "out")
    assert (manifest["documents"], manifest["rejects"]) == (29, 1)


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl"))
    path.write_bytes(b'{"text": "good"}\n{\n')
    manifest = run(make_job([path]), tmp_path / "out")
    name = f"{tmp_path}/caf\\xe9.jsonl"
    assert manifest["inputs"][0]["path"] == name
    assert [reject["path"] for reject in read_rejects(tmp_path / "out")] == [name]
    assert run(make_job([path]), tmp_path / "out") == manifest


def test_a_pipe_is_left_out(tmp_path: Path) -> None:
    paths = [write_jsonl(tmp_path / "a.jsonl", ["text"]), tmp_path / "pipe.jsonl"]
    os.mkfifo(paths[1])
    manifest = run(make_job(paths, skips_unreadable=True), tmp_path / "out")
    assert (manifest["documents"], manifest["rejects"]) == (1, 1)
    assert read_rejects(tmp_path / "out")[0]["message"] == "not a regular file"


def test_a_full_disk_ends_the_run_and_the_next_one_goes_on(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(files, shard_tokens=300)
    fsync = os.fsync
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 20:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run(job, tmp_path / "out")
    run(job, tmp_path / "out")
    run(job, tmp_path / "whole")
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_verified_documents_are_spread_over_the_job(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    check_row = Verifier._check_row

    def noting(self: Verifier, documents: Any, document: int, *rest: Any) -> None:
        compared.append(rest[-1])
        check_row(self, documents, document, *rest)

    monkeypatch.setattr(Verifier, "_check_row", noting)
    progress = Progress(1, None)
    run_job(make_job(files), VOCABULARY, tmp_path / "out", ThreadRunner(ENGINE, 1, progress, 10))
    assert (progress.num_verified, len(compared), set(compared)) == (10, 10, {0, 2})
    monkeypatch.setattr(verification, "MAX_TEXT_BYTES", -1)
    run_job(make_job(files), VOCABULARY, tmp_path / "none", ThreadRunner(ENGINE, 1, progress, 10))
    assert progress.num_verified == 0


def test_another_id_is_found_by_the_reference(files: list[Path], tmp_path: Path) -> None:
    class Wrong(CpuEngine):
        def encode(self, vocabulary: Any, batch: Batch) -> Any:
            encoded = ENGINE.encode(vocabulary, batch)
            encoded.ids = np.where(np.arange(len(encoded.ids)) == 3, 1, encoded.ids).astype(
                np.int32
            )
            return encoded

    running = ThreadRunner(Wrong(), 1, Progress(1, None), 1000)
    with pytest.raises(DiffersFromReference, match="reference"):
        run_job(make_job(files), VOCABULARY, tmp_path / "out", running)


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_file_that_has_changed_makes_another_job(
    tmp_path: Path, interrupt_after: Any, is_finished: bool
) -> None:
    path, out = write_jsonl(tmp_path / "a.jsonl", make_texts(40)), tmp_path / "out"
    if is_finished:
        first = run(make_job([path], shard_tokens=100), out)
    else:
        interrupt_after(30)
        with pytest.raises(Interrupted):
            run(make_job([path], shard_tokens=100), out)
        interrupt_after(1 << 30)
        assert list(out.glob("*.checkpoint"))
    old = path.stat().st_mtime_ns
    os.utime(path, ns=(old, old + 1))
    changed = make_job([path], shard_tokens=100)
    with pytest.raises(OtherJob, match="an input has changed"):
        run(changed, out)
    os.utime(path, ns=(old, old))
    second = run(make_job([path], shard_tokens=100), out)
    os.utime(path, ns=(old, old + 1))
    assert run(changed, out, is_fresh=True) == second
    assert not is_finished or first == second


def test_files_are_dealt_to_parts_of_neighbours(tmp_path: Path) -> None:
    paths = [
        write_jsonl(tmp_path / f"{i}.jsonl", ["x" * size])
        for i, size in enumerate((1, 900, 1, 1, 1))
    ]
    job = make_job(paths)
    for num_parts in range(1, 8):
        parts = replace(job, num_parts=num_parts).parts()
        assert [number for part in parts for number in part] == [0, 1, 2, 3, 4]
        assert len(parts) == min(num_parts, 5)
        assert all(len(part) for part in parts)


def test_windows_of_sequences(tmp_path: Path, interrupt_after: Any) -> None:
    vocabulary = builtin.load("hyenadna")
    source = np.random.default_rng(1)
    records = ["".join(source.choice(list("ACGT"), 1 + i * 7 % 90)) for i in range(40)]
    path = tmp_path / "a.fa"
    path.write_text("".join(f">{i}\n{record}\n" for i, record in enumerate(records)))
    encoded = ENGINE.encode(vocabulary, Batch(records, options=EncodeOptions(False)))
    expected = []
    for row in range(len(records)):
        ids = encoded.row(row).tolist()
        expected += [[7, *ids[start : start + 16]] for start in range(0, len(ids), 10)]
    found, _ = find_inputs([str(path)], None)
    options: dict[str, Any] = {"format": "npy", "window": 16, "stride": 10, "begin_id": 7}
    job = Job(tuple(found), vocabulary.digest, shard_tokens=40, **options)
    running = ThreadRunner(ENGINE, 2, Progress(1, None))
    manifest = run_job(job, vocabulary, tmp_path / "whole", running)
    rows = []
    for shard in manifest["shards"]:
        ids = np.load(tmp_path / "whole" / shard["files"][0]["name"])
        offsets = np.load(tmp_path / "whole" / shard["files"][1]["name"])
        rows += [row.tolist() for row in np.split(ids, offsets[1:-1])]
    assert rows == expected
    assert manifest["documents"] == len(records)
    for count in (3, 7, 12, 5, 30):
        interrupt_after(count)
        with pytest.raises(Interrupted):
            run_job(job, vocabulary, tmp_path / "cut", running)
    interrupt_after(1 << 30)
    run_job(job, vocabulary, tmp_path / "cut", running)
    assert folder_bytes(tmp_path / "cut") == folder_bytes(tmp_path / "whole")
