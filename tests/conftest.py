"""Shared by all tests: the GPU mark and engine, the profile of property tests, a service."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from gpu.engine import GpuEngine
from tests.support.each_device import DEVICES
from tests.support.gpus.card_class import use_card_class
from tests.support.gpus.device_counts import TWO_GPUS
from tests.support.gpus.prepared_once import prepare_once
from tests.support.server_process import Server, server_process

# quick: every property test with an eighth of its examples, the same ones each time (make test);
# full: all of them (make test-all); search: four times as many, other ones than last time (make
# search).
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "full")
SHARES = {"quick": 1 / 8, "quarter": 1 / 4, "full": 1, "search": 4}
timeless = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", timeless, derandomize=True)
settings.register_profile("quarter", timeless, derandomize=True)
settings.register_profile("full", timeless, derandomize=True)
settings.register_profile("search", timeless, derandomize=False, print_blob=True)
settings.load_profile(PROFILE)

# The collector would look at thousands of tests and modules again and again, a third of the time of
# tests that make many objects. It pauses until they are there, and leaves them out from then on.
gc.disable()

# A shell has what it starts in the background ignore Ctrl-C, and all that this starts does so, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def no_device() -> str:
    """Return why no CUDA device can be used; "" if one can."""
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi does not run: {error}"
    return "" if "GPU 0" in found.stdout else "nvidia-smi lists no GPU"


def gpu_required() -> bool:
    """Return whether a GPU test that cannot run fails, so that a green run is not empty."""
    return os.environ.get("REQUIRE_GPU") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the profile's share of each property test's examples."""
    functions = {item.function for item in items if isinstance(item, pytest.Function)}
    for function in functions:
        # Where Hypothesis keeps what @settings says; it has no public way to change it afterwards.
        own = getattr(function, "_hypothesis_internal_use_settings", None)
        if own is not None:
            count = max(1, int(own.max_examples * SHARES[PROFILE]))
            function._hypothesis_internal_use_settings = settings(own, max_examples=count)


def pytest_collection_finish() -> None:
    """Let the garbage collector run, rarely, and only over what tests make."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `gpu` where there is no device, and say why."""
    if item.get_closest_marker("gpu") is not None and (reason := no_device()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a skipped GPU test fail with REQUIRE_GPU=1, unless it needs more GPUs than there are."""
    report = yield
    is_gpu_test = item.get_closest_marker("gpu") is not None
    if report.skipped and is_gpu_test and gpu_required() and not _has_too_few(call):
        report.outcome = "failed"
        report.longrepr = f"REQUIRE_GPU=1, and this was skipped: {call.excinfo}"
    return report


def _has_too_few(call: pytest.CallInfo[None]) -> bool:
    return call.excinfo is not None and TWO_GPUS in str(call.excinfo.value)


@pytest.fixture(scope="session", autouse=True)
def tables_made_once() -> Iterator[None]:
    """Share the tables of a large vocabulary among all GPU engines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpu.engine.prepare", prepare_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def card_class() -> Iterator[None]:
    """CUDA devices are of the class that the environment names."""
    with pytest.MonkeyPatch.context() as patch:
        use_card_class(patch)
        yield


@pytest.fixture(params=DEVICES)
def engine(request: pytest.FixtureRequest) -> GpuEngine:
    """Call the module's `engine_of` for each of DEVICES."""
    engine: GpuEngine = request.module.engine_of(request.param)
    return engine


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a service with gpt2 loaded, shared by the tests of one module."""
    with server_process(tmp_path_factory.mktemp("service"), {"WARPTOK_PRELOAD": "gpt2"}) as running:
        yield running
