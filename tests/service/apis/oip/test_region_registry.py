"""Regions that a device opens and closes slowly: other requests go on, and no file stays open."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.apis.oip.region_registry import RegionRegistry
from service.core.errors import InvalidRequest, NameTaken, TooLarge, UnknownRegion
from tests.support.waiting import GIVEN_UP_S, run

SIZE = 4096


@pytest.fixture
def key() -> Iterator[str]:
    """The key of a POSIX shared-memory object."""
    path = Path(f"/dev/shm/warptok-test-{uuid.uuid4().hex}")
    path.write_bytes(bytes(SIZE))
    yield path.name
    path.unlink()


class SlowDevice:
    """Opens and closes memory only while `may` is set."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.failure: Exception | None = None
        self.num_open = 0
        self.files: list[int] = []

    def share_host(self, file: int, offset: int, byte_size: int) -> SlowDevice:
        assert self.may.wait(GIVEN_UP_S)
        self.files.append(file)
        if self.failure is not None:
            raise self.failure
        self.num_open += 1
        return self

    def close(self) -> None:
        assert self.may.wait(GIVEN_UP_S)
        self.num_open -= 1


def regions_of(device: SlowDevice, **settings: int) -> RegionRegistry:
    return RegionRegistry(True, settings.get("max_regions", 9), share_host=device.share_host)


async def begun(coroutine) -> asyncio.Task:
    """A task that waits for the device."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(5):
        await asyncio.sleep(0.001)  # Which would not come to an end if the loop waited as well.
    assert not task.done()
    return task


def test_the_loop_goes_on_while_a_region_is_opened_and_closed(key):
    async def scenario():
        device = SlowDevice()
        regions = regions_of(device, max_regions=2)
        opening = await begun(regions.register_system("r", key, 0, SIZE))
        with pytest.raises(UnknownRegion):
            regions.find("r")
        with pytest.raises(NameTaken):
            await regions.register_system("r", key, 0, SIZE)
        other = await begun(regions.register_system("s", key, 0, SIZE))
        with pytest.raises(TooLarge):
            await regions.register_system("t", key, 0, SIZE)
        device.may.set()
        await asyncio.gather(opening, other)
        assert regions.find("r").memory is device
        device.may.clear()
        closing = await begun(regions.unregister_system("r"))
        with pytest.raises(UnknownRegion):
            regions.find("r")
        device.may.set()
        await closing
        assert device.num_open == 1
        await regions.unregister_system()
        assert device.num_open == 0

    run(scenario)


def test_the_first_of_two_registrations_at_once_gets_the_name(key):
    async def scenario():
        device = SlowDevice()
        device.may.set()
        regions = regions_of(device)
        both = (regions.register_system("r", key, 0, SIZE) for _ in range(2))
        _, refused = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(refused, NameTaken)
        assert device.num_open == 1

    run(scenario)


def test_a_client_that_leaves_meanwhile_has_its_region(key):
    async def scenario():
        device = SlowDevice()
        regions = regions_of(device)
        opening = await begun(regions.register_system("r", key, 0, SIZE))
        opening.cancel()
        device.may.set()
        while "r" not in regions.system:
            await asyncio.sleep(0.001)
        regions.close()
        assert device.num_open == 0

    run(scenario)


def test_a_service_that_stops_meanwhile_leaves_nothing_open(key):
    async def scenario():
        device = SlowDevice()
        regions = regions_of(device)
        opening = await begun(regions.register_system("r", key, 0, SIZE))
        regions.close()
        device.may.set()
        with pytest.raises(UnknownRegion, match="stopping"):
            await opening
        assert device.num_open == 0

    run(scenario)


@pytest.mark.parametrize(
    ("failure", "expected"), [(ValueError("cut short"), InvalidRequest), (OSError("no"), OSError)]
)
def test_a_failed_registration_frees_its_name_and_closes_its_file(key, failure, expected):
    async def scenario():
        device = SlowDevice()
        device.may.set()
        device.failure = failure
        regions = regions_of(device)
        with pytest.raises(expected):
            await regions.register_system("r", key, 0, SIZE)
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(device.files[0])
        device.failure = None
        await regions.register_system("r", key, 0, SIZE)
        regions.close()

    run(scenario)
