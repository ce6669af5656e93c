"""Vocabularies with unknown patterns: the same ids from another process, which can be ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import product

import numpy as np
import pytest

from service.core.errors import DeadlinePassed
from service.engines.base import Abandoned, LibraryFailed
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.patterns.isolated_encoder import IsolatedEncoder
from service.engines.cpu.patterns.worker_process import WorkerProcess
from service.engines.cpu.selection import choose_encoder
from service.engines.cpu.verification import verify
from tests.support.child_processes import find_children, read_parent
from tests.support.data_files import ROOT
from tests.support.inputs.tokenizer_documents import BYTE_LEVEL, BYTES, added, document, encoded
from tests.support.waiting import wait_until
from vocabularies import formats
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.model.tables import token_table

SLOW = " " * 60_000 + "1"  # About 10 s for SPACES.
SPACES = {"type": "Split", "pattern": {"Regex": r"\s+$"}, "behavior": "Isolated", "invert": False}
DASHES = {"type": "Replace", "pattern": {"Regex": "a+b"}, "content": "-"}
TEXTS = ["", "abc aab-b  ", "<s>abc", "é 中 🙂 a", "ab\n \n", "x<s>  <s>", "aaab"]


def make(**fields):
    content = document(BYTES, [], added_tokens=[added("<s>", 256)], byte_level=True, **fields)
    return formats.read_vocabulary({"tokenizer.json": encoded(content)})


@pytest.fixture(scope="module")
def upstream():
    steps = [SPACES, {**BYTE_LEVEL, "use_regex": False}]
    pre_tokenizer = {"type": "Sequence", "pretokenizers": steps}
    return make(pre_tokenizer=pre_tokenizer, decoder={**BYTE_LEVEL, "use_regex": False})


@pytest.fixture
def encoder(upstream):
    made = IsolatedEncoder(upstream, token_table(upstream))
    yield made
    made.close()


def worker_ids() -> list[int]:
    """Return the ids of the workers that this process has started and that have not ended."""
    return find_children(os.getpid(), "patterns.worker")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["upstream", "bpe"])
def test_ids_spans_and_refusals_are_those_of_this_process(kind, upstream):
    vocabulary = upstream if kind == "upstream" else make(normalizer=DASHES)
    assert (vocabulary.kind, len(vocabulary.costs.patterns)) == (kind, 1)
    table = token_table(vocabulary)
    here, there = choose_encoder(vocabulary, table), IsolatedEncoder(vocabulary, table)
    assert (there.name, there.self_test) == (here.encoder.name, here.self_test)
    not_utf8 = [text.encode() for text in TEXTS] + [b"\xff"]
    for special, spans in product(("match", "plain", "refuse"), (False, True)):
        options = EncodeOptions(False, special, spans=spans)
        for batch in (Batch(TEXTS, options=options), Batch.from_bytes(not_utf8, options)):
            right, content = here.encoder.encode(batch, options), there.encode(batch, options)
            assert content.ids.tolist() == right.ids.tolist()
            assert content.offsets.tolist() == right.offsets.tolist()
            assert content.errors == right.errors
            assert (content.spans is None) == (right.spans is None)
            if content.spans is not None:
                assert content.spans.tolist() == right.spans.tolist()
    there.close()


@pytest.mark.slow
def test_decoding_and_verifying_happen_there_too(upstream):
    engine = CpuEngine()
    ids, offsets = np.array([97, 98, 999, 256, 99], np.int64), np.array([0, 2, 3, 5])
    decoded = engine.decode(upstream, ids, offsets, True)
    assert decoded.data.tobytes() == b"abc"
    assert {row: error.code for row, error in decoded.errors.items()} == {1: "id_out_of_range"}
    verification = verify(engine, upstream, TEXTS)
    assert (verification.witness, verification.num_different) == ("tokenizers", 0)
    assert engine.residency(upstream.digest).encoder.startswith("tokenizers ")
    assert len(worker_ids()) == 1
    engine.close()
    assert not worker_ids()


@pytest.mark.slow
def test_a_call_that_takes_too_long_is_ended_and_the_next_one_is_answered(encoder):
    encoder.us_per_byte = 1.0
    (before,) = worker_ids()
    begin = time.process_time()
    with pytest.raises(DeadlinePassed, match=r"more than 1\.1 s"):
        encoder.encode(Batch([SLOW]), EncodeOptions())
    assert before not in worker_ids()
    assert encoder.encode(Batch(["ab"]), EncodeOptions()).ids.tolist() == [97, 98]
    assert time.process_time() - begin < 1  # This process only waits.


@pytest.mark.slow
def test_a_decoder_that_takes_too_long_is_ended():
    strip = {"type": "Replace", "pattern": {"Regex": r"\s+$"}, "content": ""}
    content = document({"a": 0, SLOW: 1}, [], decoder=strip, pre_tokenizer=SPACES)
    vocabulary = formats.read_vocabulary({"tokenizer.json": encoded(content)})
    engine = CpuEngine(pattern_us_per_byte=1.0)
    with pytest.raises(DeadlinePassed):
        engine.decode(vocabulary, np.array([1], np.int64), np.array([0, 1]), False)
    decoded = engine.decode(vocabulary, np.array([0, 0], np.int64), np.array([0, 2]), False)
    assert decoded.data.tobytes() == b"aa"
    engine.close()


@pytest.mark.slow
def test_a_call_that_nobody_waits_for_is_ended(encoder):
    encoder.us_per_byte = 1e6
    batch, end = Batch([SLOW]), time.monotonic() + 0.5
    batch.should_continue = lambda: time.monotonic() < end
    with pytest.raises(Abandoned):
        encoder.encode(batch, EncodeOptions())
    assert not worker_ids()


@pytest.mark.slow
def test_an_idle_worker_that_has_ended_is_replaced(encoder):
    (worker,) = worker_ids()
    os.kill(worker, signal.SIGKILL)
    (idle,) = encoder._idle
    wait_until(lambda: idle.has_ended)
    assert encoder.encode(Batch(["ab"]), EncodeOptions()).ids.tolist() == [97, 98]


@pytest.mark.slow
def test_a_worker_that_ends_fails_its_call_and_not_the_next(encoder):
    (worker,) = worker_ids()
    batch = Batch([SLOW])
    batch.should_continue = lambda: os.kill(worker, signal.SIGKILL) is None
    with pytest.raises(LibraryFailed, match="ended its process"):
        encoder.encode(batch, EncodeOptions())
    assert encoder.encode(Batch(["ab"]), EncodeOptions()).ids.tolist() == [97, 98]


@pytest.mark.slow
def test_a_row_that_needs_an_unknown_token_is_refused_and_others_are_not():
    steps = [SPACES, {"type": "WhitespaceSplit"}]
    content = document({"a": 0, "b": 1}, [], type="WordLevel", unk_token="[UNK]")
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    del content["model"]["merges"]
    vocabulary = formats.read_vocabulary({"tokenizer.json": encoded(content)})
    engine = CpuEngine()
    engine.load(vocabulary)
    output = engine.encode(vocabulary, Batch(["a b", "a zzz", "b"]))
    assert (output.ids.tolist(), output.offsets.tolist()) == ([0, 1, 1], [0, 2, 2, 3])
    assert {row: error.code for row, error in output.errors.items()} == {1: "no_unknown_token"}
    engine.close()
    assert not worker_ids()


STARTER = """
import sys, time
from service.engines.cpu.patterns.messages import Message, send
from service.engines.cpu.patterns.worker_process import WorkerProcess
import numpy as np
worker = WorkerProcess()
worker.call(Message({"call": "compile", "pattern": r"\\s+$"}), 5)
text = np.frombuffer(b" " * 200_000 + b"1", np.uint8)
send(worker._socket, Message({"call": "time", "cpu_s": 0.1}, [text]), lambda: None)
print(worker._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_worker_ends_by_itself_when_its_service_was_killed():
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        worker = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 120
    while read_parent(worker) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_worker_does_not_keep_the_standard_output_of_its_service_open():
    """The supervisor reads it until it ends, and only then starts the service again."""
    worker = WorkerProcess()
    try:
        assert os.readlink(f"/proc/{worker._process.pid}/fd/1") == os.devnull
    finally:
        worker.kill()
