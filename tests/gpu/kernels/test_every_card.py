"""The kernels compile for every class of cards and fit the shared memory of its blocks.

No such card is needed: nvcc makes machine code for any of them, and ptxas reports what it needs.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpu.kernels.catalog import KERNELS, SOURCES
from gpu.kernels.job import CUDA
from gpu.kernels.launch_shape import CLASSES, DeviceLimits, launch_shape

CARDS = {
    "sm_75": CLASSES[64],
    "sm_80": CLASSES[163],
    "sm_86": CLASSES[99],
    "sm_89": CLASSES[99],
    "sm_90": CLASSES[227],
    "sm_100": CLASSES[227],
    "sm_120": CLASSES[99],
}
"""The limits of the cards of each architecture, by nvcc's name."""
GENERATIONS = (75, 80, 90)
"""The oldest card's version, and those from which on the kernels do something else (CUDA_ARCH)."""
CUDA_ARCH = re.compile(r"__CUDA_ARCH__ *[<>]=? *(\d+)")
FILES = SOURCES | {
    f"embedding/{path.stem}": (f"embedding/{path.name}",)
    for path in sorted((CUDA / "embedding").glob("*.cu"))
}
"""The files of each module; those of embedding are modules of their own."""
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+)'")
SHARED = re.compile(r"(\d+) bytes smem")
REPORTED = re.compile(r"ptxas info +: |^ +\d+ bytes stack frame|^$")
IGNORED = "Value of threads per SM for entry"
"""Is in a warning of no harm: that a bound on the blocks of a multiprocessor is ignored."""


@functools.cache
def known_cards(nvcc: str) -> tuple[str, ...]:
    """Return the architectures of CARDS that a compiler knows; older ones know fewer."""
    listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True).stdout
    return tuple(card for card in CARDS if card in listed.split())


@functools.cache
def unoptimized(nvcc: str) -> list[str]:
    """Return flags that compile a .cu in 1 s instead of 20; none for older compilers."""
    known = subprocess.run([nvcc, "--help"], capture_output=True, text=True).stdout
    return ["-Ofc=max"] if "(-Ofc)" in known else []


def by_generation(cards: Iterable[str]) -> dict[int, list[str]]:
    """Group cards whose PTX is the same, so that the front end of nvcc reads a module once each."""
    grouped: dict[int, list[str]] = {}
    for card in cards:
        version = int(card.removeprefix("sm_"))
        grouped.setdefault(max(g for g in GENERATIONS if g <= version), []).append(card)
    return grouped


def compile_for_cards(module: str, folder: Path) -> str:
    """Compile a module for every card, and return what ptxas reports of it; skips without nvcc."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    source, binary = folder / "source", folder / "binary"
    source.write_text("".join(f'#include "{file}"\n' for file in FILES[module]))
    command = [nvcc, "-std=c++17", "-fatbin", "-Xptxas", "-v", "--threads", "0", f"-I{CUDA}"]
    for generation, cards in by_generation(known_cards(nvcc)).items():
        command += ["-gencode", f"arch=compute_{generation},code=[{','.join(cards)}]"]
    command += [*unoptimized(nvcc), "-o", str(binary), "-x", "cu", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def warnings_of(report: str) -> list[str]:
    """Return the lines of a report that are neither figures nor the warning that is IGNORED."""
    lines = report.splitlines()
    return [line for line in lines if not REPORTED.match(line) and IGNORED not in line]


def static_bytes(report: str) -> dict[str, dict[str, int]]:
    """Return the static shared memory of each kernel on each card."""
    found: dict[str, dict[str, int]] = {card: {} for card in CARDS}
    kernel = card = ""
    for line in report.splitlines():
        if entry := ENTRY.search(line):
            kernel, card = entry.groups()
        elif "registers" in line:
            shared = SHARED.search(line)
            found[card][kernel] = int(shared[1]) if shared else 0
    return {card: kernels for card, kernels in found.items() if kernels}


def too_large(kernels: dict[str, int], limits: DeviceLimits) -> list[str]:
    """Return the kernels that a card runs by their launch shape and has too little memory for."""
    large = []
    for name, static in kernels.items():
        shape = launch_shape(KERNELS[name], limits) if name in KERNELS else None
        dynamic = shape.shared_bytes if shape is not None else 0
        if static + dynamic > limits.shared_bytes:
            large.append(f"{name}: {static} static + {dynamic} dynamic bytes")
    return large


def test_kernels_differ_between_generations_alone() -> None:
    sources = [path.read_text() for path in CUDA.rglob("*.cu*")]
    compared = {int(version) for source in sources for version in CUDA_ARCH.findall(source)}
    assert compared == {10 * generation for generation in GENERATIONS[1:]}
    assert by_generation(CARDS) == {
        75: ["sm_75"],
        80: ["sm_80", "sm_86", "sm_89"],
        90: ["sm_90", "sm_100", "sm_120"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("module", FILES)
def test_a_module_compiles_for_every_card_and_fits_it(module: str, tmp_path: Path) -> None:
    report = compile_for_cards(module, tmp_path)
    assert warnings_of(report) == []
    static = static_bytes(report)
    assert "sm_90" in static
    listed = {name for name, kernel in KERNELS.items() if kernel.module == module}
    for card, kernels in static.items():
        assert kernels.keys() >= listed, card
        assert too_large(kernels, CARDS[card]) == [], card


REPORT = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'merge' for 'sm_75'
ptxas info    : Function properties for merge
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 1.2 ms
"""


def test_what_ptxas_reports_is_read() -> None:
    assert static_bytes(REPORT) == {"sm_75": {"merge": 4096}}
    assert warnings_of(REPORT) == []
    warning = "ptxas warning : Stack size for entry function 'merge' cannot be determined"
    assert warnings_of(REPORT + warning) == [warning]
    assert too_large({"merge": 4096}, CLASSES[64]) == ["merge: 4096 static + 62464 dynamic bytes"]
    assert too_large({"merge": 0}, CLASSES[64]) == []
