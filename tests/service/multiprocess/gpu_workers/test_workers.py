"""GPUs in processes of their own, emulated: the same ids, by the same memory, as in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from gpu.errors import BadHandle, NotCovered
from service.engines.cpu.engine import CpuEngine
from service.multiprocess.gpu_workers.remote_gpu import RemoteGpu
from service.multiprocess.link.shared_memory import FRONT_BYTES, LinkMemory, Loan, PeerMemory
from tests.support.gpus.emulated_gpu_worker import handle_of
from tests.support.gpus.gpu_workers import NEEDS_COMPILER, EmulatedWorkers, start_workers
from tests.support.waiting import run, until, wait_until
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions
from vocabularies.batch.shared_rows import SharedRows, SharedText
from vocabularies.builtin import load

pytestmark = NEEDS_COMPILER
CPU = CpuEngine()
BYTES = load("evo_bytes")
TEXTS = ["ACGT" * 4500, "", "acgtN", "北京 now"] * 4
JOINED = b"some letters of a region " * 60
IDS = CPU.encode(BYTES, Batch.from_bytes([JOINED])).ids.tolist()


@pytest.fixture(scope="module")
def workers(tmp_path_factory) -> Iterator[EmulatedWorkers]:
    started = start_workers(CPU, tmp_path_factory.mktemp("faults"))
    started.engine.load(BYTES)
    yield started
    started.engine.close()


def check(workers: EmulatedWorkers, batch: Batch) -> None:
    """Compare an encoded batch with the CPU engine's, on each GPU."""
    expected = CPU.encode(BYTES, batch.duplicate())
    for _ in workers.gpus:
        encoded = workers.engine.encode(BYTES, batch.duplicate())
        assert encoded.engine == "gpu"
        for name in ("ids", "offsets", "spans", "num_tokens", "kept"):
            actual, own = getattr(encoded, name), getattr(expected, name)
            assert (actual is None) == (own is None), name
            assert own is None or actual.tolist() == own.tolist(), name
        assert encoded.errors == expected.errors


def test_each_has_a_process_and_one_vocabulary_is_on_both(workers):
    assert [gpu.description["visible"] for gpu in workers.gpus] == ["GPU-a", "MIG-b"]
    assert len({gpu.process_id for gpu in workers.gpus} | {os.getpid()}) == 3
    assert all(gpu.is_resident(BYTES.digest) for gpu in workers.gpus)
    residency = workers.engine.residency(BYTES.digest)
    assert residency.encoder == "cuda on 2 GPUs" and not residency.self_test.num_different
    workers.gpus[1].refresh()  # As it happens every second.
    status = workers.engine.status()
    assert [device["number"] for device in status.devices] == [0, 1]
    assert {device["budget_bytes"] for device in status.devices} == {1 << 27}
    assert status.memory["emulation #1"]["vocabularies"] == residency.device_bytes


@pytest.mark.parametrize(
    "options",
    [
        EncodeOptions(),
        EncodeOptions(spans=True),
        EncodeOptions(max_length=3, spans=True, truncation_side="left"),
        [EncodeOptions(max_length=n % 3) for n in range(len(TEXTS))],
    ],
)
def test_ids_spans_and_cuts_are_the_reference_s(workers, options):
    check(workers, Batch(TEXTS, options=options))
    rows = [text.encode() for text in TEXTS[:-1]] + [b"\xff"]
    check(workers, Batch.from_bytes(rows, options))


def test_batches_go_to_both_in_turn(workers):
    before = [member.num_batches for member in workers.several.members]
    for _ in range(4):
        workers.engine.encode(BYTES, Batch(TEXTS))
    after = [member.num_batches for member in workers.several.members]
    assert [b - a for a, b in zip(before, after, strict=True)] == [2, 2]


def test_counts_and_decoded_bytes_are_the_reference_s(workers):
    counted = workers.engine.count(BYTES, Batch(TEXTS))
    expected = CPU.encode(BYTES, Batch(TEXTS))
    assert counted.counts.tolist() == np.diff(expected.offsets).tolist()
    ids = np.concatenate([expected.ids.astype(np.int64), [99999]])
    offsets = np.concatenate([expected.offsets, [len(ids)]])
    decoded = workers.engine.decode(BYTES, ids, offsets, False)
    own = CPU.decode(BYTES, ids, offsets, False)
    assert decoded.engine == "gpu" and decoded.errors == own.errors != {}
    assert decoded.data.tobytes() == own.data.tobytes()


def test_texts_and_ids_stay_where_they_are(workers):
    """Texts in the memory that the engine lends, and ids that front ends read, are not copied."""
    text = np.frombuffer(JOINED * 100, np.uint8)
    memory = workers.engine.host_memory(len(text))
    memory[:] = text
    assert workers.memory.find_offset(memory) is not None
    texts = workers.gpus[0]._memory.texts
    num_before = texts.num_allocations
    batch = Batch(data=memory, offsets=np.array([0, len(text)]))
    encoded = [workers.engine.encode(BYTES, batch) for _ in range(4)]
    assert texts.num_allocations == num_before
    for each in encoded:
        assert workers.memory.find_offset(each.ids) is not None
        assert workers.memory.place(each.ids).array is each.ids
        assert each.ids.tolist() == CPU.encode(BYTES, batch).ids.tolist()
    # The ids of a batch are not overwritten by the next ones, and their memory is used again.
    addresses = {each.ids.ctypes.data for each in encoded}
    assert len(addresses) == 4
    del encoded, each
    later = {workers.engine.encode(BYTES, batch).ids.ctypes.data for _ in range(8)}
    assert later & addresses


def test_memory_that_is_lent_is_page_locked_by_each_and_given_back(workers):
    gpus = workers.gpus
    for gpu in gpus:
        gpu.refresh()
    before = [gpu.page_locked_bytes for gpu in gpus]
    pool = gpus[0]._memory.texts
    size = pool.cap_bytes // 2
    block = pool.take(size)
    for gpu in gpus:
        gpu.refresh()
    assert [gpu.page_locked_bytes - n for gpu, n in zip(gpus, before, strict=True)] == [size] * 2
    del block
    other = pool.take(pool.cap_bytes)  # The first block has to go.
    for gpu in gpus:
        gpu.refresh()
    assert all(gpu.page_locked_bytes >= pool.cap_bytes for gpu in gpus)
    assert all(gpu.page_locked_bytes <= pool.cap_bytes + 2 * size for gpu in gpus)
    del other


def test_a_block_that_comes_and_goes_between_two_calls_does_not_stay_page_locked(workers):
    before = [page_locked(gpu) for gpu in workers.gpus]
    memory = workers.gpus[0]._memory
    for _ in range(3):
        block = memory.allocate_pinned(1 << 20)
        memory.free_pinned(block)
    assert [page_locked(gpu) for gpu in workers.gpus] == before


def test_arrays_of_front_ends_are_read_in_place(workers):
    front = LinkMemory(file_bytes=1 << 30)
    peer = PeerMemory(front.path)
    peer.page_lock(workers.engine.share_host, min(FRONT_BYTES, 1 << 22))
    data = np.frombuffer(JOINED * 100, np.uint8)
    lent = front.place(data).array
    released: list[bool] = []
    loan = Loan(lambda: released.append(True))
    array = peer.array(front.find_offset(lent), data.dtype.str, data.shape, loan)
    del loan
    texts = workers.gpus[0]._memory.texts
    num_before = texts.num_allocations
    check(workers, Batch(data=array, offsets=np.array([0, len(data)])))
    assert texts.num_allocations == num_before
    del array
    wait_until(lambda: released)
    front.close()


def test_batches_that_workers_see_are_encoded_without_a_thread(workers):
    large = np.frombuffer(JOINED * 100, np.uint8)
    memory = workers.engine.host_memory(len(large))
    memory[:] = large
    seen = Batch(data=memory, offsets=np.array([0, 9, len(large)]))
    begin = workers.engine.begin_encode

    async def scenario() -> None:
        answers: list[Encoded | None] = []
        assert not begin(BYTES, Batch(data=large, offsets=seen.offsets), answers.append)
        for gpu in workers.gpus:
            gpu.refresh()  # It tells the worker of the new block.
        num_before = [member.num_batches for member in workers.several.members]
        for _ in range(3):  # The second time, with the connections and the blocks of the first.
            for batch in (seen, seen, Batch.from_bytes([JOINED]), seen):
                assert begin(BYTES, batch, answers.append)
            await until(lambda: len(answers) == 4)
            expected = [CPU.encode(BYTES, each) for each in (Batch.from_bytes([JOINED]), seen)]
            found = sorted((each.ids.tolist() for each in answers), key=len)
            assert found == [each.ids.tolist() for each in expected + [expected[1]] * 2]
            assert {each.engine for each in answers} == {"gpu"}
            answers.clear()
        counts = [member.num_batches for member in workers.several.members]
        assert all(b - a >= 6 for a, b in zip(num_before, counts, strict=True))
        assert not any(member.bytes_in_flight for member in workers.several.members)

    run(scenario)
    run(scenario)  # On another loop.


@pytest.mark.parametrize(
    "place", ["worker_process.WorkerProcess._read_answer", "remote_gpu.read_encoded"]
)
def test_a_begun_batch_ends_if_its_answer_cannot_be_read(workers, monkeypatch, place):
    async def scenario() -> None:
        answers: list[Encoded | None] = []
        with monkeypatch.context() as context:
            context.setattr(f"service.multiprocess.gpu_workers.{place}", lambda *_: 1 / 0)
            batch = Batch.from_bytes([JOINED])
            assert workers.engine.begin_encode(BYTES, batch, answers.append)
            await until(lambda: answers)
        assert answers == [None]
        assert not any(member.bytes_in_flight for member in workers.several.members)
        assert not any(member._ends for member in workers.several.members)

    run(scenario)
    for member in workers.several.members:
        member.failures_in_row = 0


def test_errors_keep_their_class_and_blame_nobody(workers):
    failures = [member.num_failures for member in workers.several.members]
    with pytest.raises(BadHandle, match="no memory of this device"):
        workers.engine.open_shared(handle_of(5, 0), 64)
    with pytest.raises(NotCovered, match="no longer on the GPU"):
        workers.gpus[0].encode(load("gpn"), Batch(TEXTS))
    assert [member.num_failures for member in workers.several.members] == failures


@pytest.mark.slow
def test_a_vocabulary_is_unloaded_from_both(workers):
    other = load("hyenadna")
    assert workers.engine.load(other).engine == "gpu"
    assert all(gpu.is_resident(other.digest) for gpu in workers.gpus)
    workers.engine.unload(other.digest)
    assert not any(gpu.is_resident(other.digest) for gpu in workers.gpus)
    assert all(gpu.is_resident(BYTES.digest) for gpu in workers.gpus)


# Memory of clients.


@pytest.fixture
def file() -> Iterator[int]:
    number = os.memfd_create("region")
    os.truncate(number, 8192)
    os.pwrite(number, JOINED, 0)
    yield number
    os.close(number)


def rows_in(text, out) -> SharedRows:
    offsets = np.array([0, len(JOINED)])
    return SharedRows(SharedText(text, 0, len(JOINED)), offsets, out, 2048, 4096, 2)


def page_locked(gpu: RemoteGpu) -> int:
    gpu.refresh()
    return gpu.page_locked_bytes


def test_a_region_of_the_host_is_opened_by_each_and_closed_by_each(workers, file):
    before = [page_locked(gpu) for gpu in workers.gpus]
    region = workers.engine.share_host(file, 0, 8192)
    for _ in range(4):
        os.pwrite(file, bytes(4000), 2048)
        offsets = workers.engine.encode_shared(BYTES, rows_in(region, region))
        assert offsets.tolist() == [0, len(JOINED)]
        assert np.frombuffer(os.pread(file, 2 * len(JOINED), 2048), "<u2").tolist() == IDS
    locked = [page_locked(gpu) - n for gpu, n in zip(workers.gpus, before, strict=True)]
    assert locked == [8192, 8192]
    out = np.empty(len(JOINED), np.uint8)
    region.read(0, out)
    assert out.tobytes() == JOINED
    region.close()
    assert [page_locked(gpu) for gpu in workers.gpus] == before
    assert workers.engine.encode_shared(BYTES, rows_in(region, region)) is None
    with pytest.raises(ValueError, match="length"):
        workers.engine.share_host(file, 0, 1 << 20)


@pytest.mark.parametrize("device_id", [0, 1, 7])
def test_device_memory_is_opened_by_the_worker_that_has_it(workers, file, device_id):
    region = workers.engine.open_shared(handle_of(1, file), 8192, device_id)
    assert region.device is workers.gpus[1]
    before = [member.num_batches for member in workers.several.members]
    for _ in range(2):
        os.pwrite(file, bytes(4000), 2048)
        offsets = workers.engine.encode_shared(BYTES, rows_in(region, region))
        assert offsets.tolist() == [0, len(JOINED)]
        assert np.frombuffer(os.pread(file, 2 * len(JOINED), 2048), "<u2").tolist() == IDS
    after = [member.num_batches for member in workers.several.members]
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 2]
    out = np.empty(len(JOINED), np.uint8)
    region.read(0, out)
    assert out.tobytes() == JOINED
    region.write(5000, np.frombuffer(b"written", np.uint8))
    assert os.pread(file, 7, 5000) == b"written"
    with pytest.raises(IndexError):
        region.read(8000, out)
    region.close()
    with pytest.raises(ValueError, match="closed"):
        region.read(0, out)


def test_texts_on_one_and_ids_on_the_other_are_left_to_the_host(workers, file):
    first = workers.engine.open_shared(handle_of(0, file), 8192)
    second = workers.engine.open_shared(handle_of(1, file), 8192)
    assert workers.engine.encode_shared(BYTES, rows_in(first, second)) is None
    first.close()
    second.close()
