"""The command `corpus`: its options, its exit codes, and a process that is killed at any moment."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu.errors import DeviceUnavailable
from service.cli import corpus
from service.cli.parser import main
from service.corpus.writing.shard_files import PartialFile
from service.engines.cpu.engine import CpuEngine
from tests.support.data_files import ROOT
from tests.support.inputs.corpora import folder_bytes, make_texts, write_jsonl
from vocabularies import builtin

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["corpus", *arguments, "--json", "--quiet"])
    return code, json.loads(capsys.readouterr().out or "{}")


def test_a_folder_of_files(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    write_jsonl(tmp_path / "in" / "b.jsonl", ["second"])
    write_jsonl(tmp_path / "in" / "deep" / "b.jsonl", ["third"])
    (tmp_path / "in" / "a.txt").write_text("first\ndocument\n")
    (tmp_path / "in" / "README").write_text("no document")
    out = tmp_path / "out"
    code, figures = run(
        capsys, str(tmp_path / "in"), "--out", str(out), "-v", "gpt2", "--append-eod"
    )
    assert (code, figures["documents"], figures["shards"]) == (0, 3, 1)
    inner = str(tmp_path / "in" / "out")
    command = [str(tmp_path / "in"), "--out", inner, "-v", "gpt2", "--format", "parquet"]
    assert [run(capsys, *command)[1]["documents"] for _ in range(2)] == [3, 3]
    ids = np.fromfile(out / "shard_00000_00000.bin", np.uint16).tolist()
    tokens = [builtin.load("gpt2").tokens[token_id] or b"" for token_id in ids]
    end = b"<|endoftext|>"
    assert b"".join(tokens) == b"first\ndocument\n" + end + b"second" + end + b"third" + end


@pytest.mark.parametrize(
    ("engine", "num_bytes", "opened"),
    [("auto", 9, "cpu"), ("auto", 10, "auto"), ("gpu", 9, "gpu"), ("cpu", 10, "cpu")],
)
def test_a_small_job_opens_no_gpu(tmp_path, monkeypatch, engine, num_bytes, opened):
    names: list[str] = []

    def open_engine(name: str, vocabulary: Any) -> CpuEngine:
        names.append(name)
        return CpuEngine(1)

    monkeypatch.setattr(corpus, "open_engine", open_engine)
    monkeypatch.setattr(corpus, "GPU_BYTES", 10)
    (tmp_path / "a.txt").write_text("a" * num_bytes)
    options = ["-v", "gpt2", "--engine", engine, "--quiet"]
    assert main(["corpus", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out"), *options]) == 0
    assert names == [opened]


def test_a_job_whose_gpu_cannot_be_opened_is_continued_on_the_cpu(tmp_path, monkeypatch, capsys):
    class Lost(CpuEngine):
        def encode(self, vocabulary: Any, batch: Any) -> Any:
            raise DeviceUnavailable("the driver is too old")

    (tmp_path / "a.txt").write_text("some text")
    command = ["corpus", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out"), "-v", "gpt2"]
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "open_engine", lambda name, vocabulary: Lost(1))
        assert main([*command, "--engine", "gpu", "--quiet"]) == 2
    message = "warptok: the driver is too old; run the same command with --engine cpu to continue"
    assert capsys.readouterr().err.startswith(message)
    assert main([*command, "--engine", "cpu", "--quiet"]) == 0


def test_named_tokens_lines_and_rejects(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "texts"
    path.write_bytes(b"a\n\nb\xff\nc")
    options = ["--read-as", "lines", "--begin", "!", "--append-eod", "--eod", "#"]
    code, figures = run(capsys, str(path), "--out", str(tmp_path / "out"), "-v", "gpt2", *options)
    assert (code, figures["documents"], figures["rejects"]) == (1, 2, 1)
    ids = np.fromfile(tmp_path / "out" / "shard_00000_00000.bin", np.uint16).tolist()
    assert ids == [0, 64, 2, 0, 66, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl"], "No such file"),
        (["texts.csv"], "--read-as, which is one of"),
        (["a.jsonl", "a.jsonl"], "named twice"),
        (["a.jsonl", "--eod", "x"], "--eod is only allowed together with --append-eod"),
        (["a.jsonl", "--format", "mds", "--shard-tokens", "300000000"], "at most 200000000"),
        (["folder"], "there are no files of documents in folder"),
        (["memory://nowhere/*.jsonl"], "no files of documents"),
        (["a.jsonl", "a.txt", "--chats", "--chat-template", "a.txt"], "--chats needs JSONL files"),
        (["a.jsonl", "--chats", "--chat-template", "latin"], "latin: byte 1 is not UTF-8"),
        (["a.jsonl", "--begin", "no such token"], "no token"),
        (["a.jsonl", "-v", "hyenadna", "--append-eod", "--eod", "?!"], "no token"),
    ],
)
def test_refusals(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", ["text"])
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "latin").write_bytes(b"a\xe9")
    assert main(["corpus", "-v", "gpt2", *arguments, "--out", "out", "--quiet"]) == 2
    assert message in capsys.readouterr().err


def test_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(PartialFile, "complete", full)
    path = write_jsonl(tmp_path / "a.jsonl", ["text"])
    assert main(["corpus", str(path), "--out", str(tmp_path / "o"), "-v", "gpt2", "--quiet"]) == 2
    message = f"{tmp_path}/o: No space left on device; run the same command again to continue"
    assert message in capsys.readouterr().err


def test_soft_masked_dna(tmp_path: Path, capsys: Capture) -> None:
    shards = []
    for name, sequence, options in (
        ("soft", "ACgtNacg", ["--uppercase"]),
        ("hard", "ACGTNACG", []),
    ):
        (tmp_path / f"{name}.fa").write_text(f">1\n{sequence}\n")
        command = [str(tmp_path / f"{name}.fa"), "--out", str(tmp_path / name), "-v", "hyenadna"]
        assert run(capsys, *command, "--verify", "1", *options)[1]["verified"] == 1
        shards.append((tmp_path / name / "shard_00000_00000.bin").read_bytes())
    assert shards[0] == shards[1]
    same_files = [str(tmp_path / "soft.fa"), "--out", str(tmp_path / "soft"), "-v", "hyenadna"]
    assert main(["corpus", *same_files]) == 2  # Another job: without --uppercase.


def test_inputs_in_the_folder_of_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", ["first"])
    (tmp_path / "b.txt").write_text("second")
    options = ["-v", "gpt2", "--format", "parquet"]
    for _ in range(2):
        assert run(capsys, ".", "--out", ".", *options)[1]["documents"] == 2
    other = ["-v", "gpt2", "--prefix", "other.1", "--format", "mds", "--shard-tokens", "1"]
    assert run(capsys, ".", "--out", ".", *other, "--fresh")[1]["documents"] == 2
    assert run(capsys, ".", "--out", "deep", *options, "--read-as", "lines")[1]["documents"] == 2
    assert run(capsys, ".", "--out", ".", *options, "--fresh")[1]["documents"] == 2
    named = ["a.jsonl", "--out", ".", "--fresh", "-v", "gpt2"]
    assert run(capsys, *named)[1]["documents"] == 1
    shard = ["shard_00000_00000.bin", "--read-as", "lines", "--out", "out", "-v", "gpt2"]
    assert run(capsys, *shard)[1]["input_bytes"] > 0


def count_shards(folder: Path) -> int:
    """Count the shards that an unfinished job would not make again."""
    try:
        checkpoint = json.loads((folder / "part_00000.checkpoint").read_bytes())
    except FileNotFoundError:
        return 0
    return len(checkpoint["shards"])


@pytest.mark.slow
def test_a_killed_process_goes_on(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", make_texts(20_000, most_words=200))
    command = [sys.executable, "-m", "service", "corpus", str(path), "-v", "gpt2", "--append-eod"]
    command += ["--shard-tokens", "50000", "--quiet", "--threads", "2", "--pack", "512"]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], cwd=ROOT, check=True)
    chance, cut = random.Random(), tmp_path / "cut"
    num_killed = 0
    while num_killed < 3:
        wanted = count_shards(cut) + chance.randint(1, 8)
        process = subprocess.Popen([*command, "--out", str(cut)], cwd=ROOT)
        while process.poll() is None and count_shards(cut) < wanted:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        if process.wait() == 0:  # It was faster.
            shutil.rmtree(cut)
            num_killed = 0
        else:
            num_killed += 1
    subprocess.run([*command, "--out", str(cut)], cwd=ROOT, check=True)
    assert folder_bytes(cut) == folder_bytes(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_documents_of_200_mb_stay_below_a_gigabyte(tmp_path: Path, name: str) -> None:
    text = "\n".join(make_texts(2000, most_words=200)) + "\n"
    document = json.dumps({"text": text * (200_000_000 // len(text.encode()))}).encode()
    path = tmp_path / name
    with gzip.open(path, "wb", 1) if name.endswith(".gz") else open(path, "wb") as file:
        for line in (b'{"text": "first"}', document, document, b'{"text": "last"}'):
            file.write(line + b"\n")
    command = [sys.executable, "-m", "service", "corpus", str(path), "-v", "gpt2", "--json"]
    command += ["--threads", "2", "--quiet", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    figures = json.loads(done.stdout)
    assert figures["documents"] == 4
    assert figures["peak_memory_bytes"] < 1 << 30
