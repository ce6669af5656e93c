"""Jobs on a cluster of two nodes: the bytes of a local run, also if a node is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.service.corpus.runners.ray_clusters import local_cluster
from tests.support.data_files import ROOT
from tests.support.inputs.corpora import folder_bytes, make_texts, write_jsonl

pytest.importorskip("ray", reason="pip install 'warptok[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NUM_FILES = 8
OPTIONS = ["-v", "gpt2", "--append-eod", "--shard-tokens", "20000", "--parts", "4", "--quiet"]
MAX_S = 300.0  # On a machine that does other work, too.


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with local_cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of documents, in which `local` has the shards of a local run."""
    folder = tmp_path_factory.mktemp("ray")
    for number in range(NUM_FILES):
        path = write_jsonl(
            folder / f"{number}.jsonl", make_texts(8000, seed=number, most_words=200)
        )
        with open(path, "ab") as file:
            file.write(b"[]\n")  # A reject.
    assert run(folder, "local").returncode == 1
    return folder


def start(folder: Path, out: str, *options: str, first: str = "") -> subprocess.Popen[str]:
    """Start the command there, with paths that are relative."""
    files = ([first] if first else []) + [f"{number}.jsonl" for number in range(NUM_FILES)]
    command = [sys.executable, "-X", "faulthandler", "-m", "service", "corpus", *files]
    command += ["--out", out, *OPTIONS, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def run(folder: Path, out: str, *options: str, first: str = "") -> subprocess.CompletedProcess[str]:
    process = start(folder, out, *options, first=first)
    stdout, stderr = wait_for(process)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def wait_for(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what the command has printed when it has ended.

    If it takes too long it is aborted, and the error has what it printed and where it was.
    """
    try:
        return process.communicate(timeout=MAX_S)
    except subprocess.TimeoutExpired as error:
        process.send_signal(signal.SIGABRT)
        _, stderr = process.communicate(timeout=MAX_S)
        error.add_note(stderr)
        raise


def wait_for_parts(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Wait until so many parts, each on another node, have written shards and are not done."""
    begun = time.perf_counter()
    num_running = 0
    while num_running < count:
        assert process.poll() is None, process.communicate()
        assert time.perf_counter() - begun < MAX_S
        time.sleep(0.02)
        checkpoints = [json.loads(path.read_bytes()) for path in folder.glob("part_*.checkpoint")]
        num_running = sum(not checkpoint["is_done"] for checkpoint in checkpoints)


def test_bytes_are_those_of_a_local_run(cluster: Any, folder: Path) -> None:
    done = run(folder, "ray", "--ray", cluster.address, "--verify", "20", "--json")
    assert done.returncode == 1, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["rejects"], figures["documents"]) == (NUM_FILES, NUM_FILES * 8000)
    assert figures["input_bytes"] == sum(path.stat().st_size for path in folder.glob("*.jsonl"))
    assert figures["verified"] >= 20
    assert folder_bytes(folder / "ray") == folder_bytes(folder / "local")


def test_a_run_that_was_stopped_goes_on_without_the_cluster(cluster: Any, folder: Path) -> None:
    process = start(folder, "stopped", "--ray", cluster.address)
    wait_for_parts(process, folder / "stopped", 1)
    process.send_signal(signal.SIGINT)
    _, stderr = wait_for(process)
    assert (process.returncode, stderr) == (
        130,
        "warptok: stopped; run the same command again to continue\n",
    )
    assert not (folder / "stopped" / "manifest.json").exists()
    assert run(folder, "stopped").returncode == 1
    assert folder_bytes(folder / "stopped") == folder_bytes(folder / "local")


def test_errors_are_those_of_the_part(cluster: Any, folder: Path) -> None:
    damaged = folder / "damaged.jsonl.gz"
    damaged.write_bytes(b"\x1f\x8b\x08\x00damaged")
    done = run(folder, "failed", "--ray", cluster.address, first=damaged.name)
    assert done.returncode == 2
    assert f"warptok: {damaged.name}: " in done.stderr
    damaged.unlink()
    nowhere = run(folder, "nowhere", "--ray", "127.0.0.1:1")
    assert (
        nowhere.returncode,
        "cannot connect to a Ray cluster at 127.0.0.1:1" in nowhere.stderr,
    ) == (2, True)
    too_many = run(folder, "failed", "--ray", cluster.address, "--threads", "9", "--fresh")
    assert (too_many.returncode, "largest node has only 1 cores" in too_many.stderr) == (2, True)


def test_a_node_is_lost(cluster: Any, folder: Path) -> None:
    node = next(iter(cluster.worker_nodes))
    process = start(folder, "lost", "--ray", cluster.address)
    wait_for_parts(process, folder / "lost", 2)
    cluster.remove_node(node, allow_graceful=False)
    assert process.poll() is None
    _, stderr = wait_for(process)
    assert process.returncode == 1, stderr
    assert folder_bytes(folder / "lost") == folder_bytes(folder / "local")


def test_a_node_without_the_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.exceptions import RaySystemError, RayTaskError

    from service.corpus.runners import ray_cluster

    traceback = "ModuleNotFoundError: No module named 'service'"  # Of `pickle.loads`.
    error = RayTaskError("_run", traceback, RaySystemError("System error", traceback))
    monkeypatch.setattr(ray_cluster.ray, "get", Mock(side_effect=error))
    with pytest.raises(ray_cluster.OtherNode) as raised:
        ray_cluster._get("a call")
    assert str(raised.value) == (
        "a node has no module 'service'; install 'warptok[ray]' for the Python of Ray on every node"
    )


def test_resources_of_a_part() -> None:
    from service.corpus.runners.ray_cluster import choose_resources

    cpus = {"Alive": True, "Resources": {"CPU": 16.0}}
    gpus = {"Alive": True, "Resources": {"CPU": 96.0, "GPU": 8.0}}
    dead = {"Alive": False, "Resources": {"CPU": 512.0, "GPU": 8.0}}
    assert choose_resources([cpus, dead], "auto", None) == (1, 0)
    assert choose_resources([cpus, dead], "auto", 16) == (16, 0)
    assert choose_resources([cpus, gpus], "auto", None) == (12, 1)
    assert choose_resources([cpus, gpus], "gpu", 96) == (96, 1)
    assert choose_resources([cpus, gpus], "cpu", None) == (1, 0)
    with pytest.raises(ValueError, match="no node of the Ray cluster has a GPU"):
        choose_resources([cpus, dead], "gpu", None)
    with pytest.raises(ValueError, match="largest node has only 16 cores"):
        choose_resources([cpus, dead], "auto", 17)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_an_address_of_ipv6_is_tried_without_its_brackets() -> None:
    from service.corpus.runners.ray_cluster import _check_address

    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        address = f"[::1]:{listening.getsockname()[1]}"
        _check_address(address)
    with pytest.raises(ConnectionError, match="cannot connect to a Ray cluster"):
        _check_address(address)
