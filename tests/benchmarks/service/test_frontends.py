"""The benchmark of several front ends: it compares ids and times; a wrong id ends it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from contextlib import closing
from time import perf_counter

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.service.frontends import __main__
from benchmarks.service.frontends.__main__ import line, summary
from benchmarks.service.frontends.clients import LAST_CHUNK, OK, counted, ids_digest, streams
from tests.support.data_files import ROOT

IDS = [[1, 2], [], [50_256]]


@pytest.mark.slow
def test_two_front_ends_are_proved_and_timed(tmp_path):
    out = tmp_path / "frontends.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.service.frontends",
        "--counts",
        "2",
        "--rounds",
        "1",
    ]
    command += ["--seconds", "0.3", "--megabytes", "1", "--engine", "cpu", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600, stdout=subprocess.DEVNULL)
    (row,) = json.loads(out.read_text())["rows"]
    assert row["frontends"] == 2
    assert row["small"]["requests_per_s"] > 0
    assert row["arrow"]["gb_per_s"] > 0
    assert row["arrow"]["limit_gb_per_s"] > 0
    assert row["arrow"]["gpu_share"] == 0
    assert row["small"].keys() >= {"engine", "fronts", "clients", "p99_ms"}


@pytest.mark.parametrize(
    ("engine", "gpus", "num_processes"),
    [("auto", "all", 3), ("gpu", "1", 1), ("auto", "0,1", 3), ("cpu", "all", 1)],
)
def test_each_of_several_gpus_has_a_process(monkeypatch, engine, gpus, num_processes):
    monkeypatch.setenv("WARPTOK_GPUS", gpus)
    monkeypatch.setattr(__main__, "list_visible_gpus", lambda: ["0", "1"])
    assert __main__.count_engine_processes(engine) == num_processes


def test_ratios_are_taken_within_each_round():
    def row(count: int, rate: float, speed: float) -> dict:
        return {
            "frontends": count,
            "small": {"requests_per_s": rate},
            "arrow": {"gb_per_s": speed, "limit_gb_per_s": 2 * speed},
        }

    rows = [
        row(1, 10, 1),
        row(8, 60, 2),
        row(1, 20, 1),
        row(8, 140, 3),
        row(1, 30, 2),
        row(8, 150, 2),
    ]
    found = summary(rows, [1, 8])
    assert found["small 8"] == {"requests_per_s": 140, "ratio": 6, "least": 5, "most": 7}
    warm = {"gb_per_s": 2.5, "ratio": 2, "least": 1, "most": 3, "limit_gb_per_s": 4}
    assert found["arrow 8"] == warm | {"first": 2}
    warmer = {"gb_per_s": 2, "ratio": 1, "least": 1, "most": 1, "first": 2}
    warmer |= {"limit_gb_per_s": 4}
    assert summary(rows, [1, 8], num_warmup=2)["arrow 8"] == warmer
    assert summary(rows, [1, 8], num_warmup=3)["arrow 8"] == warmer
    assert found["small 1"]["ratio"] == 1
    assert summary(rows[:2], [1, 8])["arrow 8"]["gb_per_s"] == 2
    for each in rows:
        del each["small"]
    assert summary(rows, [1, 8]).keys() == {"arrow 1", "arrow 8"}
    arrow = {
        "gb_per_s": 1.5,
        "limit_gb_per_s": 3,
        "gpu_share": 0.5,
        "fronts": 2,
        "engine": 1,
        "clients": 3,
    }
    assert "50% by the GPU" in line({"frontends": 8, "arrow": arrow})


def answer() -> bytes:
    """Make an Arrow stream of ids as the service sends it."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([pa.array(IDS, pa.list_(pa.uint16()))], names=["ids"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = bytes(sink.getvalue())
    head = OK + b" OK\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n" % (len(body), body) + LAST_CHUNK


@pytest.mark.parametrize(
    ("said", "digest", "words"),
    [
        (answer(), ids_digest(np.frombuffer(answer(), np.uint8)), ""),
        (answer(), "of other ids", "other ids under load"),
        (answer()[: -len(LAST_CHUNK)], "", "cut short"),
        (b"HTTP/1.1 429 x\r\n\r\n", "", "refused"),
    ],
)
def test_a_stream_with_another_answer_ends_it(tmp_path, said, digest, words):
    sent = tmp_path / "request"
    sent.write_bytes(b"x")

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with closing(connection):
            connection.recv(1)
            connection.sendall(said)

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        asked = (port, sent, 1 << 16, digest, 1e-6, 1, perf_counter())
        if words:
            with pytest.raises(SystemExit, match=words):
                streams(*asked)
        else:
            assert 0 < streams(*asked) <= 1


def test_a_stream_that_goes_on_behind_the_seconds_is_counted_in_part():
    assert counted([10, 11, 12, 14], 3) == 2.5
    assert counted([10, 11, 12, 13], 3) == 3
    assert counted([10, 14], 1) == 0.25
