"""The files of deploy/, the Dockerfile and the Makefile agree with the running service."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import yaml

from service.core.settings import PREFIX, Settings
from service.multiprocess.supervisor import STOP_S
from tests.support.data_files import ROOT
from tests.support.server_process import Server, service_environment

DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/warptok.json").read_text())


def instructions(word: str) -> list[str]:
    """The arguments of each such instruction of the Dockerfile, continued lines joined."""
    lines = re.sub(r"\\\n", " ", DOCKERFILE).splitlines()
    return [
        line.strip().removeprefix(word).strip() for line in lines if line.strip().startswith(word)
    ]


BASE_IMAGE = instructions("ARG PYTHON_IMAGE=")[0]


def test_the_base_image_is_named_by_its_digest_and_every_stage_has_it() -> None:
    assert re.fullmatch(r"python:3\.13\.\d+-slim-\w+@sha256:[0-9a-f]{64}", BASE_IMAGE)
    stages = ["${PYTHON_IMAGE}", "scratch"]
    for line in instructions("FROM"):
        base, _, name = line.partition(" AS ")
        assert base in stages
        stages.append(name)


def healthchecks() -> list[list[str]]:
    return [json.loads(check[check.index("[") :]) for check in instructions("HEALTHCHECK")]


YAML_FILES = [path for path in sorted(DEPLOY.rglob("*.y*ml")) if path.parent.name != "templates"]


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_yaml_file_is_a_mapping(path: Any) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_every_image_has_a_fixed_version() -> None:
    images = [service["image"] for service in COMPOSE["services"].values()]
    assert len(images) == 4
    for image in [*images, BASE_IMAGE]:
        tag = image.partition("@")[0].rpartition(":")[2]
        assert re.search(r"\d+\.\d+", tag), f"{image} names no version"
        assert "latest" not in image


def test_the_images_carry_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert COMPOSE["services"]["cpu"]["image"] == f"warptok:{version}-cpu"
    assert COMPOSE["services"]["gpu"]["image"] == f"warptok:{version}-gpu"


def test_compose_builds_stages_that_the_dockerfile_has() -> None:
    stages = {line.rpartition(" AS ")[2] for line in instructions("FROM")}
    assert {"cpu", "gpu", "render"} <= stages
    for name in ("cpu", "gpu"):
        assert COMPOSE["services"][name]["build"]["target"] in stages
        assert COMPOSE["services"][name]["profiles"] == [name]


def test_the_gpu_profile_reserves_a_device() -> None:
    resources = COMPOSE["services"]["gpu"]["deploy"]["resources"]
    [device] = resources["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_compose_mounts_files_that_are_there() -> None:
    for name, service in COMPOSE["services"].items():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            known = (DEPLOY / source).exists() if source[0] == "." else source in COMPOSE["volumes"]
            assert known, f"{name} mounts {source}"


def test_compose_waits_longer_than_the_service_drains() -> None:
    service = COMPOSE["services"]["cpu"]
    environment = service["environment"]
    times = ("WARPTOK_LAME_DUCK_S", "WARPTOK_DRAIN_TIMEOUT_S")
    drain_s = sum(float(environment[name]) for name in times)
    # The supervisor of several processes kills them later than that.
    assert float(service["stop_grace_period"].removesuffix("s")) > drain_s + STOP_S


def test_only_real_settings_are_set() -> None:
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    given = set(re.findall(r"\bWARPTOK_[A-Z_]+(?==)", DOCKERFILE))
    given |= set(COMPOSE["services"]["cpu"]["environment"])
    assert given == {
        "WARPTOK_HOST",
        "WARPTOK_PORT",
        "WARPTOK_STORE_DIR",
        "WARPTOK_LAME_DUCK_S",
        "WARPTOK_DRAIN_TIMEOUT_S",
    }
    assert given <= settings


def test_signals_reach_the_service_and_not_a_shell() -> None:
    assert instructions("ENTRYPOINT") == ['["warptok"]']
    commands = [command for command in instructions("CMD") if "python" not in command]
    assert commands == ['["serve"]', '["render", "/mnt/models/base"]', '["serve"]']


def test_the_images_run_as_an_unprivileged_user() -> None:
    assert instructions("USER") == ["10001:10001"]


def test_the_images_are_built_with_a_compiler_and_fail_without_the_extensions() -> None:
    compiler, _, wheel = instructions("RUN")[:3]
    assert "install --yes --no-install-recommends binutils g++" in compiler
    assert wheel.endswith("= \"$(grep --count 'tool.setuptools.ext-modules' pyproject.toml)\"")


def test_compiled_kernels_outlive_the_container() -> None:
    cache = re.search(r"CUPY_CACHE_DIR=(\S+)", DOCKERFILE)
    assert cache is not None
    mounted = dict(each.split(":") for each in COMPOSE["services"]["gpu"]["volumes"])
    [volume] = [name for name, folder in mounted.items() if folder == cache[1]]
    assert volume in COMPOSE["volumes"]
    assert set(COMPOSE["services"]["cpu"]["volumes"]) < set(COMPOSE["services"]["gpu"]["volumes"])


def test_what_the_image_starts_exists() -> None:
    [entry] = importlib.metadata.entry_points(group="console_scripts", name="warptok")
    assert callable(entry.load())


def test_the_image_gets_every_package_and_the_build_files() -> None:
    copied = {name for line in instructions("COPY") for name in line.split()[:-1]}
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {pattern.rstrip("*") for pattern in setuptools["packages"]["find"]["include"]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in packages | {"pyproject.toml", "README.md"}:
        assert name in copied
        assert f"!{name}" in ignored


@pytest.mark.slow
def test_the_healthcheck_passes_on_a_ready_service(server: Server) -> None:
    port = server.url.rpartition(":")[2]
    [healthcheck] = healthchecks()
    command = [sys.executable, *healthcheck[1:]]
    assert command[1] == "-c"
    environment = service_environment({"WARPTOK_PORT": port})
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_healthcheck_fails_where_nothing_listens() -> None:
    command = [sys.executable, *healthchecks()[0][1:]]
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        environment = service_environment({"WARPTOK_PORT": str(bound.getsockname()[1])})
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ConnectionRefusedError" in done.stderr


def test_prometheus_asks_the_address_that_compose_gives_the_service() -> None:
    configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    [job] = configuration["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["warptok:8000"]}]
    for name in ("cpu", "gpu"):
        assert COMPOSE["services"][name]["networks"]["default"]["aliases"] == ["warptok"]


def test_the_dashboard_reads_the_datasource_that_is_provisioned() -> None:
    provisioned = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text()
    )
    [source] = provisioned["datasources"]
    chosen = DASHBOARD["templating"]["list"][0]
    assert (chosen["name"], chosen["type"], chosen["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert chosen["current"] == {"text": source["name"], "value": source["uid"]}


def test_every_make_target_is_one_that_make_knows() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for target in ("serve", "test", "lint", "fix", "bench", "image", "clean"):
        command = ["make", "--dry-run", target]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_checks_of_the_build_machine_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script]).returncode == 0
