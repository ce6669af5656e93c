"""The command doctor: what each check finds, and the exit code."""

from __future__ import annotations

import importlib
import json
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu.errors import DeviceUnavailable
from gpu.host import extensions
from gpu.kernels.families import TEXT, dna_family, family_on
from gpu.kernels.launch_shape import CLASSES
from service.cli.doctor import cards, configuration, machine
from service.cli.doctor.finding import Finding
from service.cli.parser import main
from service.core.settings import PREFIX, Settings
from service.security.api_keys import add_key
from tests.support.certificates import make_certificate
from tests.support.gpus.fake_cupy import CUDARuntimeError, fake_cupy
from tests.support.inputs.model_folder import write_model_folder

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def environment(monkeypatch: Patch) -> None:
    """One without settings but for ports, which are free ones."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WARPTOK_PORT", "0")
    monkeypatch.setenv("WARPTOK_GRPC_PORT", "0")
    monkeypatch.setenv("WARPTOK_ENGINE", "cpu")


def found(findings: Iterator[Finding]) -> Finding:
    """The only finding of a check."""
    (finding,) = findings
    return finding


def states(findings: Iterator[Finding]) -> dict[str, str]:
    return {finding.what: finding.state for finding in findings}


# The command.


def test_a_line_for_each_finding_and_exit_code_0(capsys: Capture) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warning"}
    assert lines[0].startswith("ok       warptok: ")
    assert "ok       GPU engine: not used: WARPTOK_ENGINE=cpu" in lines
    assert any(
        line.startswith("ok       HTTP port: 127.0.0.1: takes a free port") for line in lines
    )


def test_json_is_one_object_for_programs(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setenv("WARPTOK_PRELOAD", "gpt3")
    assert main(["doctor", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["would_start"] is False
    (error,) = (each for each in answer["findings"] if each["state"] == "error")
    assert error == {
        "what": "vocabularies",
        "state": "error",
        "detail": "WARPTOK_PRELOAD names gpt3, but no vocabulary has this name",
        "advice": "correct WARPTOK_PRELOAD: `warptok vocabularies` lists the built-in ones",
        "facts": {},
    }


def test_wrong_settings_are_all_found_and_nothing_else_is_checked(
    monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setenv("WARPTOK_PORTS", "1")
    monkeypatch.setenv("WARPTOK_PORT", "70000")
    monkeypatch.setenv("WARPTOK_ENGINE", "tpu")
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    errors = sorted(line.split()[1] for line in lines if line.startswith("error"))
    assert errors == ["WARPTOK_ENGINE:", "WARPTOK_PORT:", "WARPTOK_PORTS:"]
    assert any("did you mean WARPTOK_PORT? -> correct or unset it" in line for line in lines)
    assert "ok       settings: WARPTOK_ENGINE=tpu, WARPTOK_GRPC_PORT=0, WARPTOK_PORT=70000" in lines
    assert not any("HTTP port" in line for line in lines)


# The machine.


def test_what_is_slower_without_an_extension_is_said(monkeypatch: Patch) -> None:
    def fail(name: str) -> None:
        raise ImportError(name)

    assert set(states(machine.check_extensions()).values()) == {"ok"}
    monkeypatch.setattr(importlib, "import_module", fail)
    monkeypatch.setattr(extensions, "are_built", False)
    findings = list(machine.check_extensions())
    assert [finding.state for finding in findings] == ["warning"] * 8
    assert any("byte-level BPE by tokenizers" in finding.detail for finding in findings)
    assert all("install g++" in finding.advice for finding in findings)


def test_a_missing_library_of_the_cpu_engine_stops_the_start(monkeypatch: Patch) -> None:
    assert found(machine.check_libraries()).state == "ok"
    monkeypatch.setattr(machine, "LIBRARIES", ("numpy", "no-such-package"))
    assert found(machine.check_libraries()).line() == (
        "error    CPU engine: no-such-package not installed -> install warptok again"
    )


# The cards.


@pytest.fixture
def with_cupy(monkeypatch: Patch) -> Callable[..., None]:
    """Let the checks find a CuPy; see fake_cupy for its arguments."""

    def use(**arguments: Any) -> None:
        monkeypatch.setattr(cards.importlib.util, "find_spec", lambda _: object())
        monkeypatch.setattr(cards, "load_cupy", lambda: fake_cupy(**arguments))

    return use


def test_cards_are_described_with_what_runs_in_place_of_what(
    with_cupy: Callable[..., None],
) -> None:
    with_cupy(count=2)
    cupy, first, second = cards.check_cards()
    assert cupy.detail == "CuPy 14.2.0 for CUDA 12.9, driver for CUDA 13.0"
    assert first.what == "card 0" and second.what == "card 1"
    assert first.detail == (
        "NVIDIA L4, compute capability 8.9, 24.0 GiB, class of 99 KiB a block, no clusters; "
        "encode_grid in place of encode_cluster; forward_windows in place of "
        "forward_windows_copied; the kernels of large batches in place of encode_dna_parts; "
        "the kernels of large batches in place of encode_dna_parts_copied"
    )
    assert first.facts["replaced_kernels"]["encode_cluster"] == "encode_grid"
    assert first.facts["class_kib"] == 99


def test_cards_that_cannot_be_used_are_warnings(
    monkeypatch: Patch, with_cupy: Callable[..., None]
) -> None:
    with_cupy(capability="70")
    assert states(cards.check_cards()) == {"CuPy": "ok", "card 0": "warning"}
    with_cupy(count=CUDARuntimeError("cudaErrorInsufficientDriver"), driver=0)
    assert "no NVIDIA driver" in found(cards.check_cards()).detail
    monkeypatch.setattr(cards.importlib.util, "find_spec", lambda _: None)
    finding = found(cards.check_cards())
    assert finding.state == "ok" and "gpu-cuda13" in finding.advice


@pytest.mark.parametrize("kib", CLASSES)
def test_what_runs_instead_is_what_the_engine_takes(kib: int) -> None:
    limits = CLASSES[kib]
    replaced = cards.replaced_kernels(limits)
    assert cards.class_of(limits) == kib
    copied = dna_family(
        has_whole=False,
        maps=False,
        walk=("forward_windows_copied",),
        parts="encode_dna_parts_copied",
    )
    for family in (TEXT, copied):
        own = family_on(family, limits.runs)
        for name in family.kernels - own.kernels:
            other = replaced.pop(name)
            assert other == cards.LARGE_BATCHES or other in own.kernels
    assert set(replaced) <= {"encode_dna_parts"}


def test_the_gpu_engine_is_opened_and_closed(
    monkeypatch: Patch, with_cupy: Callable[..., None]
) -> None:
    with_cupy()
    closed, shares = [], []
    failed: list[dict[str, int]] = []

    def open_gpus(settings: Settings) -> Any:
        shares.append(settings.gpu_memory_share)
        gpu = SimpleNamespace(close=lambda: closed.append(True))
        return SimpleNamespace(gpu=gpu, device={"name": "NVIDIA L4"}, unavailable=failed)

    monkeypatch.setattr("service.multiprocess.gpu_workers.opening.open_gpus", open_gpus)
    finding = found(cards.check_gpu_engine(Settings(engine="auto", gpu_memory_share=0.25)))
    assert finding.state == "ok" and finding.detail.startswith("opens on NVIDIA L4, in 0.")
    assert (closed, shares) == ([True], [0.25])
    failed.append({"number": 3})
    finding = found(cards.check_gpu_engine(Settings(engine="auto")))
    assert finding.state == "warning" and finding.detail.endswith("; not on cards 3")


def test_cards_of_the_settings_must_exist(
    monkeypatch: Patch, with_cupy: Callable[..., None]
) -> None:
    with_cupy()
    monkeypatch.setattr("service.engines.hybrid.opening.num_devices", lambda: 1)
    finding = found(cards.check_gpu_engine(Settings(engine="auto", gpus="0,2")))
    assert finding.state == "error" and "WARPTOK_GPUS=0,2: this process sees 1" in finding.detail


@pytest.mark.parametrize("error", [DeviceUnavailable("no NVRTC"), RuntimeError("no NVRTC")])
def test_a_gpu_engine_that_does_not_open_is_an_error_where_it_is_demanded(
    monkeypatch: Patch, with_cupy: Callable[..., None], error: Exception
) -> None:
    def open_gpus(settings: Settings) -> Any:
        raise error

    with_cupy()
    monkeypatch.setattr("service.multiprocess.gpu_workers.opening.open_gpus", open_gpus)
    finding = found(cards.check_gpu_engine(Settings(engine="gpu")))
    assert finding.state == "error" and "no NVRTC" in finding.detail
    finding = found(cards.check_gpu_engine(Settings(engine="auto")))
    assert finding.state == "warning" and "the CPU engine computes everything" in finding.detail
    monkeypatch.setattr(cards.importlib.util, "find_spec", lambda _: None)
    assert found(cards.check_gpu_engine(Settings(engine="auto"))).state == "ok"


# What the settings name.


def test_vocabularies_of_the_settings_exist(tmp_path: Path) -> None:
    (tmp_path / "mine.vocabulary").touch()
    check = configuration.check_vocabularies
    finding = found(check(Settings(store_dir=tmp_path, preload="gpt2, mine")))
    assert finding.line().endswith("built in, 1 in the store; gpt2, mine preloaded")
    assert found(check(Settings(preload="mine"))).state == "error"
    assert found(check(Settings(default_vocabulary="mine"))).state == "warning"
    named = Settings(aliases="a/b=gpt2", default_vocabulary="a/b", preload="a/b")
    assert found(check(named)).state == "ok"
    assert found(check(Settings(aliases="a"))).state == "error"
    folder = write_model_folder(tmp_path / "base")
    assert "called openai/gpt-2, base, " in found(check(Settings(model_dir=folder))).detail
    (folder / "tokenizer.json").write_text("{}")
    assert found(check(Settings(model_dir=folder))).state == "error"
    assert found(check(Settings(model_dir=tmp_path / "none"))).state == "error"


def test_no_store_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    finding = found(configuration.check_store(Settings(store_dir=folder)))
    assert finding.state == "ok" and "does not exist" in finding.detail
    assert not folder.parent.exists()


def test_a_store_folder_that_cannot_be_used_stops_the_start(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder, problem in ((file, "is not a folder"), (file / "below", f"{file} is not a folder")):
        finding = found(configuration.check_store(Settings(store_dir=folder)))
        assert finding.state == "error" and problem in finding.detail
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for folder, problem in ((tmp_path, "cannot be read"), (tmp_path / "new", "cannot be made in")):
        finding = found(configuration.check_store(Settings(store_dir=folder)))
        assert finding.state == "error" and problem in finding.detail


def test_a_store_folder_is_described(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "mine.vocabulary").touch()
    check, settings = configuration.check_store, Settings(store_dir=tmp_path)
    monkeypatch.setattr(configuration.shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 30))
    assert (
        found(check(settings)).line()
        == f"ok       store folder: {tmp_path}: 1 vocabularies, 3.0 GiB free"
    )
    monkeypatch.setattr(configuration.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    assert found(check(settings)).state == "warning"
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert "uploads are refused" in found(check(settings)).detail


def test_who_may_call_without_keys_is_said() -> None:
    assert found(configuration.check_keys(Settings())).state == "ok"
    finding = found(configuration.check_keys(Settings(host="0.0.0.0")))
    assert finding.state == "warning" and "warptok key" in finding.advice


def test_a_file_of_keys_is_read_and_its_permissions_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    settings = Settings(api_keys_file=path)
    assert found(configuration.check_keys(settings)).state == "error"
    add_key(path, "alice", ("encode",))
    assert found(configuration.check_keys(settings)).line() == (
        f"ok       keys: {path}: 1, permissions 600"
    )
    path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IWOTH)
    finding = found(configuration.check_keys(settings))
    assert finding.state == "warning" and finding.advice == f"chmod 600 {path}"
    path.write_text("{}")
    assert found(configuration.check_keys(settings)).state == "error"


@pytest.mark.parametrize(
    ("settings", "files", "state", "words"),
    [
        ({}, 65_536, "ok", "up to 4096 over HTTP, up to 4096 over gRPC; "),
        ({}, resource.RLIM_INFINITY, "ok", "may open: no limit"),
        ({}, 4_096, "warning", "at most 4096; fewer than 4096 -> raise the hard limit"),
        ({"grpc": False, "max_connections": 1_000}, 4_096, "ok", "up to 1000 over HTTP; "),
        ({"frontends": 4, "max_connections": 8_000}, 9_000, "ok", "2000 over HTTP in each front"),
    ],
)
def test_fewer_files_than_connections_are_a_warning(
    monkeypatch: Patch, settings: dict[str, Any], files: int, state: str, words: str
) -> None:
    limits = [(256, files)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    if files == resource.RLIM_INFINITY:
        limits = [(files, files)]
    finding = found(configuration.check_connections(Settings(**settings)))
    assert finding.state == state and words in finding.line()


def test_the_files_for_tls_are_checked(tmp_path: Path) -> None:
    assert list(configuration.check_tls(Settings())) == []
    one, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "other")
    settings = Settings(tls_certificate=one.certificate, tls_key=one.key)
    assert found(configuration.check_tls(settings)).state == "ok"
    wrong = found(configuration.check_tls(settings.model_copy(update={"tls_key": other.key})))
    assert (wrong.state, "TLS_KEY" in wrong.detail) == ("error", True)


def test_the_paths_of_unix_sockets_must_be_free(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    settings = Settings(unix_socket=path)
    assert found(configuration.check_unix_sockets(settings)).state == "ok"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        assert found(configuration.check_unix_sockets(settings)).state == "ok"  # Nobody listens.
        listening.listen()
        taken = found(configuration.check_unix_sockets(settings))
        assert (taken.state, "another program" in taken.detail) == ("error", True)
    path.unlink()
    path.write_text("")
    assert "not a socket" in found(configuration.check_unix_sockets(settings)).detail
    lost = Settings(grpc_unix_socket=tmp_path / "no" / "grpc.sock")
    assert "cannot be written" in found(configuration.check_unix_sockets(lost)).detail
    alone = Settings(host="none", unix_socket=path)
    assert list(configuration.check_ports(alone)) == []


def test_the_addresses_of_proxies_are_checked() -> None:
    assert list(configuration.check_proxies(Settings())) == []
    check = configuration.check_proxies
    assert found(check(Settings(trusted_proxies="10.0.0.0/8"))).state == "ok"
    assert found(check(Settings(trusted_proxies="proxy"))).state == "error"


def test_a_port_in_use_stops_the_start() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        settings = Settings(grpc_port=port, metrics_port=0)
        findings = list(configuration.check_ports(settings))
    assert [finding.state for finding in findings] == ["ok", "error", "ok"]
    assert findings[1].line() == (
        f"error    gRPC port: 127.0.0.1:{port}: Address already in use -> stop the program that "
        "uses it, or set WARPTOK_GRPC_PORT"
    )
    finding = next(configuration.check_ports(Settings(host="192.0.2.1")))
    assert (finding.state, finding.advice) == ("error", "correct WARPTOK_HOST")
    http, grpc = configuration.check_ports(Settings(port=port, grpc_port=port))
    assert (http.state, grpc.state) == ("ok", "error")
    assert grpc.detail == f"{port} is also the HTTP port"
    assert list(states(configuration.check_ports(Settings(port=port, grpc=False)))) == ["HTTP port"]


def test_tracing_needs_its_packages(monkeypatch: Patch) -> None:
    assert list(configuration.check_tracing(Settings())) == []
    settings = Settings(tracing=True)
    monkeypatch.setattr(configuration.importlib.util, "find_spec", lambda _: object())
    assert found(configuration.check_tracing(settings)).state == "ok"
    monkeypatch.setattr(configuration.importlib.util, "find_spec", lambda _: None)
    assert found(configuration.check_tracing(settings)).state == "error"

    def fail(_: str) -> None:
        raise ModuleNotFoundError("opentelemetry")

    monkeypatch.setattr(configuration.importlib.util, "find_spec", fail)
    assert found(configuration.check_tracing(settings)).state == "error"
