"""The threads that help with large batches.

They are kept, bounded, made anew after a fork, asleep when there is no work, and shared by calls.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from service.engines.cpu.text import encoder as text_encoder

pytestmark = pytest.mark.skipif(text_encoder.native is None, reason="the extension is not built")
SCRIPT = """
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from service.engines.cpu.engine import CpuEngine
from vocabularies import builtin
from vocabularies.batch.batch import Batch

rng = np.random.default_rng(36)
batch = Batch(["".join(rng.choice(list("ACGT"), 1000)) for _ in range(600)])
engine = CpuEngine()


def count_threads():
    return len(os.listdir("/proc/self/task"))


def check(name, limit):
    vocabulary = builtin.load(name)
    engine.load(vocabulary)
    loaded = engine._loaded[vocabulary.digest]
    loaded.chosen.encoder.num_threads = limit  # The machine may have fewer cores.
    before = count_threads()
    ids = engine.encode(vocabulary, batch).ids
    started = count_threads() - before  # Extensions may share their threads.
    assert started <= limit - 1, name
    for _ in range(20):
        assert np.array_equal(engine.encode(vocabulary, batch).ids, ids), name
    assert count_threads() - before == started, f"{name}: a later call has started threads"
    begin = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - begin < 0.1, f"{name}: threads do not sleep"
    with ThreadPoolExecutor(3) as pool:
        for other in pool.map(lambda _: engine.encode(vocabulary, batch).ids, range(60)):
            assert np.array_equal(other, ids), f"{name}: calls at once"
    child = os.fork()
    if not child:
        is_same = np.array_equal(engine.encode(vocabulary, batch).ids, ids)
        os._exit(0 if is_same and count_threads() == limit else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, f"{name}: a forked process"


for name, limit in (("gpt2", 1), ("gpt2", 4), ("dnabert2", 3), ("nt_v2", 4)):
    check(name, limit)
"""

DAEMON = """
import sys
import threading
import time

from service.engines.cpu.engine import CpuEngine
from vocabularies import builtin
from vocabularies.batch.batch import Batch

vocabulary, engine = builtin.load("gpt2"), CpuEngine()
engine.load(vocabulary)
engine._loaded[vocabulary.digest].chosen.encoder.num_threads = int(sys.argv[1])
batch = Batch(["Some words of a text. " * 5_000_000])  # Takes longer than the process runs.
threading.Thread(target=engine.encode, args=(vocabulary, batch), daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_process_ends_while_a_daemon_thread_encodes(num_threads: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", DAEMON, str(num_threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_threads_are_kept_and_a_forked_process_has_its_own() -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
