"""Vocabularies on the device: within the budget, the least recently used leaves, users finish."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu.errors import OutOfMemory
from gpu.kernels.families import TEXT
from gpu.vocabulary.cache import VocabularyCache
from gpu.vocabulary.device_tables import DeviceTables, prepare
from tests.support.emulation.device import EmulatedDevice
from vocabularies.builtin import load

FUSED_MODULES = {"fused_block", "fused_cluster", "fused_grid"}
SIZE = 1 << 20
EACH = SIZE + 256  # What an array of SIZE bytes takes with the gap behind it.


def vocabulary(name: str, size: int = SIZE) -> Any:
    """Make an object with a digest, and an array full of its first letter."""
    return SimpleNamespace(digest=name, size=size)


def arrays(wanted: Any, seed: int) -> DeviceTables:
    numbers = {"has_whole_only": 0, "seed": ord(wanted.digest)}
    return DeviceTables(
        TEXT, {"pairs": np.full(wanted.size, ord(wanted.digest), np.uint8)}, numbers, 1
    )


A, B, C, D = map(vocabulary, "abcd")


def residents(room_for: int, device: EmulatedDevice | None = None) -> VocabularyCache:
    return VocabularyCache(device or EmulatedDevice(), room_for * EACH, arrays)


def names(held: VocabularyCache) -> str:
    return "".join(name for name in "abcd" if name in held)


def test_arrays_are_on_the_device_and_numbers_as_they_are() -> None:
    device = EmulatedDevice()
    held = residents(1, device)
    assert held.load(A) == EACH
    with held.using(A) as resident:
        assert resident.fields["seed"] == ord("a")
        assert resident.fields["pairs"] == resident.address
        assert (device.blocks[resident.address][:SIZE] == ord("a")).all()
    held.close()
    assert (device.used_bytes, held.used_bytes, names(held)) == (0, 0, "")


def test_a_familys_kernels_are_compiled_when_its_first_vocabulary_comes() -> None:
    device = EmulatedDevice()
    held = residents(1, device)
    assert not device.prepared
    held.load(A)
    assert device.prepared == {"text", "split", "merge", *FUSED_MODULES}


def test_the_least_recently_used_leaves_and_comes_back_with_its_next_use() -> None:
    held = residents(2)
    for each in (A, B, A, C):
        held.load(each)
    assert names(held) == "ac"
    with held.using(B) as resident:
        assert resident.fields["seed"] == ord("b")
    assert names(held) == "bc"
    assert (held.num_evicted, held.used_bytes) == (2, 2 * EACH)


def test_permanent_vocabularies_stay_until_they_are_unloaded() -> None:
    held = residents(2)
    held.load(A, permanent=True)
    for each in (B, C, D, B):
        held.load(each)
        assert "a" in held
    held.load(B, permanent=True)
    with pytest.raises(OutOfMemory, match="beside"):
        held.load(C)
    assert names(held) == "ab"
    held.unload("a")
    held.load(C)
    assert names(held) == "bc"


def test_a_vocabulary_larger_than_the_budget_evicts_no_other() -> None:
    held = residents(1)
    held.load(A)
    with pytest.raises(OutOfMemory):
        held.load(vocabulary("b", 2 * SIZE))
    assert names(held) == "a"


def test_where_the_device_has_less_than_the_budget_its_memory_counts() -> None:
    held = residents(9, EmulatedDevice(total_bytes=2 * EACH))
    for each in (A, B, C):
        held.load(each)
    assert names(held) == "bc"
    with pytest.raises(OutOfMemory):
        residents(9, EmulatedDevice(total_bytes=EACH - 1)).load(A)


@pytest.mark.parametrize("how", ["unloaded", "given up"])
def test_a_running_call_finishes_on_a_vocabulary_that_leaves(how: str) -> None:
    device = EmulatedDevice()
    held = residents(1, device)
    with ThreadPoolExecutor(1) as pool:
        with held.using(A) as resident:
            if how == "unloaded":
                held.unload("a")
            waiting = pool.submit(held.load, B)
            while "a" in held:
                time.sleep(0.001)
            time.sleep(0.01)
            assert not waiting.done()
            assert (device.blocks[resident.address][:SIZE] == ord("a")).all()
        assert waiting.result() == EACH
    assert (names(held), device.used_bytes) == ("b", EACH)


def test_one_that_is_idle_leaves_before_one_that_is_in_use() -> None:
    held = residents(2)
    held.load(A)
    held.load(B)
    with held.using(A), held.using(B):
        pass
    with held.using(A):
        held.load(C)
        held.load(D)
        assert names(held) == "ad"


def test_many_threads_upload_a_vocabulary_once_and_wait_for_no_other() -> None:
    gate, made = threading.Event(), []

    def slowly(wanted: Any, seed: int) -> DeviceTables:
        made.append(wanted.digest)
        assert wanted is not A or gate.wait(60)
        return arrays(wanted, seed)

    held = VocabularyCache(EmulatedDevice(), 2 * EACH, slowly)
    with ThreadPoolExecutor(8) as pool:
        loading = [pool.submit(held.load, A) for _ in range(8)]
        assert held.load(B) == EACH
        assert not any(each.done() for each in loading)
        gate.set()
        assert {each.result() for each in loading} == {EACH}
    assert sorted(made) == ["a", "b"]


def test_what_cannot_be_made_leaves_nothing_behind() -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("told to fail")

    device = EmulatedDevice()
    broken = VocabularyCache(device, EACH, fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="told to fail"):
            broken.load(A)
    held = residents(1, device)
    device.stream = fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="told to fail"):
        held.load(A)
    assert (device.used_bytes, held.used_bytes, names(held)) == (0, 0, "")
    del device.stream  # type: ignore[attr-defined]
    assert held.load(A) == EACH


def test_threads_that_use_more_than_fits_all_get_what_they_ask_for() -> None:
    device = EmulatedDevice()
    held = residents(2, device)

    def use(number: int) -> bool:
        wanted = (A, B, C, D)[number * number % 7 % 4]
        with held.using(wanted) as resident:
            return bool((device.blocks[resident.address][:SIZE] == ord(wanted.digest)).all())

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(use, range(200)))
    assert held.used_bytes <= 2 * EACH
    held.close()
    assert device.used_bytes == 0


def test_a_real_vocabulary_is_prepared_with_every_array_that_has_a_field() -> None:
    device = EmulatedDevice()
    held = VocabularyCache(device, 1 << 28)
    num_bytes = held.load(load("gpt2"))
    assert num_bytes == held.used_bytes == device.used_bytes > 1 << 20
    with held.using(load("gpt2")) as resident:
        assert resident.fields["num_ids"] == len(load("gpt2"))


@pytest.mark.parametrize("name", ["gpt2", "dnabert2", "nt_v2"])
def test_behind_the_last_token_are_bytes_that_kernels_may_read(name: str) -> None:
    spelled = prepare(load(name), 0).arrays["token_bytes"]
    assert spelled.tobytes() == b"".join(token or b"" for token in load(name).tokens) + bytes(16)
