"""The locks of the images fit pyproject.toml, and every file of them has its hash."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest

from tests.support.data_files import ROOT

LOCK: dict[str, Any] = runpy.run_path(str(ROOT / "deploy" / "image" / "lock.py"))
NAMES = ("build", "cpu", "gpu", "render")


def pins(name: str) -> dict[str, str]:
    """The version of each package of a lock."""
    lock = (ROOT / "deploy/locks" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) ", lock, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_was_written_from_the_requirements_of_today(name: str) -> None:
    lock = (ROOT / "deploy/locks" / f"{name}.txt").read_text()
    assert lock.startswith(LOCK["head"](name)), "run: make locks"
    for requirement in LOCK["requirements"]()[name]:
        assert LOCK["name_of"](requirement) in pins(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_package_of_a_lock_has_hashes(name: str) -> None:
    lock = (ROOT / "deploy/locks" / f"{name}.txt").read_text()
    for line in re.sub(r"\\\n", "", lock).splitlines():
        assert line.startswith("#") or re.search(r"==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line
    assert "://" not in lock


def test_the_images_have_the_same_versions() -> None:
    cpu = pins("cpu")
    for name in ("gpu", "render"):
        assert cpu.items() >= {(key, pins(name)[key]) for key in cpu.keys() & pins(name).keys()}


def test_render_has_no_arrow_dna_or_grpc() -> None:
    left_out = {"ahocorasick-rs", "dnaio", "grpcio", "huggingface-hub", "protobuf", "pyarrow"}
    assert not left_out & pins("render").keys()
    assert left_out <= pins("cpu").keys()
    assert pins("gpu").keys() - pins("cpu").keys() >= {"cupy-cuda12x", "nvidia-cuda-nvrtc-cu12"}
