"""Checks of CuPy, the cards and the GPU engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from time import perf_counter

from gpu.errors import DeviceUnavailable
from gpu.kernels.catalog import KERNELS
from gpu.kernels.launch_shape import CLASSES, DeviceLimits
from gpu.runtime.cupy_loader import (
    EXTRAS,
    Card,
    check_capability,
    count_devices,
    describe_card,
    describe_cuda,
    load_cupy,
)
from service.cli.doctor.finding import Finding
from service.cli.doctor.machine import gib
from service.core.settings import PREFIX, Settings

LARGE_BATCHES = "the kernels of large batches"
INSTEAD = {
    "encode_cluster": "encode_grid",
    "forward_windows_copied": "forward_windows",
    "encode_dna_parts": LARGE_BATCHES,
    "encode_dna_parts_copied": LARGE_BATCHES,
}
"""The replacement of each kernel that some cards cannot run (`families.family_on`)."""


def check_cards() -> Iterator[Finding]:
    """Report CuPy and each card; a machine without CuPy needs none."""
    if importlib.util.find_spec("cupy") is None:
        yield Finding("CuPy", "ok", "not installed, so no GPU is used", f"for a GPU {EXTRAS}")
        return
    try:
        cupy = load_cupy()
        count = count_devices(cupy)
    except DeviceUnavailable as error:
        yield Finding("CuPy", "warning", f"no GPU is used: {error}")
        return
    yield Finding("CuPy", "ok", describe_cuda(cupy))
    for number in range(count):
        yield _describe(describe_card(cupy, number))


def _describe(card: Card) -> Finding:
    what = f"card {card.number}"
    try:
        check_capability(card)
    except DeviceUnavailable as error:
        return Finding(what, "warning", str(error), "use another card, or the CPU engine")
    instead = replaced_kernels(card.limits)
    facts = {
        "name": card.name,
        "compute_capability": card.limits.capability,
        "class_kib": class_of(card.limits),
        "shared_bytes": card.limits.shared_bytes,
        "total_bytes": card.total_bytes,
        "has_clusters": card.limits.has_clusters,
        "replaced_kernels": instead,
    }
    major, minor = card.limits.capability
    clusters = "clusters" if card.limits.has_clusters else "no clusters"
    detail = (
        f"{card.name}, compute capability {major}.{minor}, {gib(card.total_bytes)}, class of "
        f"{class_of(card.limits)} KiB a block, {clusters}"
    )
    replaced = "".join(f"; {other} in place of {name}" for name, other in instead.items())
    return Finding(what, "ok", detail + replaced, facts=facts)


def class_of(limits: DeviceLimits) -> int:
    """Return the class of a card, in KiB of shared memory per block; 0 if below all classes."""
    return max((kib for kib in CLASSES if kib << 10 <= limits.shared_bytes), default=0)


def replaced_kernels(limits: DeviceLimits) -> dict[str, str]:
    """Return the replacement of each kernel that a card cannot run."""
    return {name: INSTEAD[name] for name in KERNELS if not limits.runs(name)}


def check_gpu_engine(settings: Settings) -> Iterator[Finding]:
    """Open the GPU engine as the service would, and close it."""
    what = "GPU engine"
    if settings.engine == "cpu":
        yield Finding(what, "ok", f"not used: {PREFIX}ENGINE=cpu")
        return
    if settings.engine == "auto" and importlib.util.find_spec("cupy") is None:
        yield Finding(
            what, "ok", "not used: CuPy is not installed; the CPU engine computes everything"
        )
        return
    if problem := _cards_problem(settings):
        yield Finding(what, "error", problem, "correct the setting")
        return
    begin = perf_counter()
    try:
        name, failed = _open_once(settings)
    except Exception as error:  # Errors of CuPy, the driver and the compiler, too.
        problem = str(error) if isinstance(error, DeviceUnavailable) else repr(error)
        yield _refused(settings, what, problem)
    else:
        detail = f"opens on {name}, in {perf_counter() - begin:.1f} s"
        if failed:
            detail += f"; not on cards {', '.join(map(str, failed))}"
        yield Finding(what, "warning" if failed else "ok", detail)


def _refused(settings: Settings, what: str, problem: str) -> Finding:
    if settings.engine == "gpu":
        detail = f"{PREFIX}ENGINE=gpu, but the GPU engine does not start: {problem}"
        return Finding(
            what, "error", detail, f"with {PREFIX}ENGINE=auto the CPU engine computes all"
        )
    detail = f"does not start, so the CPU engine computes everything: {problem}"
    return Finding(what, "warning", detail, f"{PREFIX}ENGINE=cpu ends this warning")


def _cards_problem(settings: Settings) -> str:
    """Return why the setting `gpus` prevents the start; "" if it does not."""
    from service.engines.hybrid.opening import check_gpus

    try:
        check_gpus(settings.gpus)
    except ValueError as error:
        return str(error)
    return ""


def _open_once(settings: Settings) -> tuple[str, list[str | int]]:
    """Open the GPU engine and close it; return its name and the numbers of cards that failed."""
    from service.multiprocess.gpu_workers.opening import open_gpus

    opened = open_gpus(settings)
    opened.gpu.close()
    return str(opened.device["name"]), [device["number"] for device in opened.unavailable]
