"""The DNA benchmark: fast references equal the reference, ids are compared before timing."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from benchmarks.dna import __main__, proofs
from benchmarks.dna import engines as dna_ways
from benchmarks.dna.fast_references import find_fast_reference, prove_fast_reference
from benchmarks.dna.proofs import Prover
from benchmarks.dna.sequences import Shape, proof_rows, sequences
from benchmarks.engine.gpu_calls import GpuWays
from service.engines.cpu.engine import CpuEngine
from tests.support.emulation.device import EmulatedDevice
from vocabularies.builtin import load

FEW = ["--engine", "cpu", "--vocabularies", "hyenadna", "nt_v2", "dnabert2", "--rounds", "1"]
FEW += ["--slice-s", "0", "--prove-bases", "3e4", "--processes", "1"]


@pytest.mark.parametrize("name", __main__.VOCABULARIES)
def test_fast_references_equal_the_reference_on_every_kind_of_row(name):
    (rows,) = proof_rows(None, 20_000, 3, 20_000)
    _, fast_reference = find_fast_reference(load(name))
    short = [text for text in rows.texts if len(text) < 6000]
    assert prove_fast_reference(load(name), fast_reference, short) > 1000


def test_the_command_proves_and_times(tmp_path, monkeypatch):
    monkeypatch.setattr(__main__, "QUICK", (Shape("4 x 100", 4, 100),))
    out = tmp_path / "dna.json"
    __main__.main([*FEW, "--quick", "--out", str(out)])
    document = json.loads(out.read_text())
    assert [proof["bases"] >= 30_000 for proof in document["proofs"]] == [True] * 3
    ways = {(row["vocabulary"], row["way"]) for row in document["results"]}
    assert ("hyenadna", "bytes.translate") in ways
    assert ("dnabert2", "tokenizers, all cores") in ways
    assert ("nt_v2", "cpu engine, list[str]") in ways


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the kernels")
def test_the_gpus_ways_are_proved_and_timed_too():
    args = __main__.parse([*FEW[:3], "hyenadna", *FEW[6:], "--prove-bases", "2e3"])
    gpu = GpuWays(EmulatedDevice(1 << 32), 1 << 28)
    document = __main__.run(args, gpu, (Shape("3 x 50", 3, 50),))
    ways = {row["way"] for row in document["results"]}
    wanted = {"gpu kernels, device to device", "gpu engine, bytes", "gpu engine, list[str]"}
    wanted |= {f"gpu engine, {form} to device" for form in ("pinned", "bytes", "list[str]")}
    assert wanted | {"copy host_to_device"} <= ways


def test_what_is_slow_gets_the_front_of_a_shape_and_is_proved_on_it(monkeypatch):
    monkeypatch.setattr(dna_ways, "FRONT_BASES", 130)
    monkeypatch.setattr(dna_ways, "usable_cores", lambda: 2)
    args = __main__.parse([*FEW[:3], "dnabert2", *FEW[6:], "--prove-bases", "2e3"])
    document = __main__.run(args, None, (Shape("3 x 50", 3, 50), Shape("1 x 700", 1, 700)))
    slow = [row for row in document["results"] if row["way"].startswith("tokenizers")]
    assert {(row["shape"], row["bases"]) for row in slow} == {("3 x 50", 130), ("1 x 700", 130)}
    for shape, wanted in (
        (Shape("", 3, 90), 180),
        (Shape("", 9, 9), 130),
        (Shape("", 1, 990), 130),
    ):
        assert dna_ways.front_for_all_cores(sequences(shape, np.zeros(9, np.uint8))) == wanted
    rows = sequences(Shape("3 x 50", 3, 50), np.zeros(9, np.uint8))
    for bases, wanted in (
        (49, [0, 49]),
        (50, [0, 50]),
        (51, [0, 50, 51]),
        (900, [0, 50, 100, 150]),
    ):
        assert dna_ways.front(rows, bases).offsets.tolist() == wanted
        assert len(dna_ways.front(rows, bases).data) == wanted[-1]


def wrong(encode):
    def encode_wrong(self, vocabulary, batch):
        encoded = encode(self, vocabulary, batch)
        encoded.ids = np.array(encoded.ids)
        encoded.ids[-1] += 1
        return encoded

    return encode_wrong


def test_a_wrong_id_ends_it(monkeypatch):
    monkeypatch.setattr(CpuEngine, "encode", wrong(CpuEngine.encode))
    with Prover(None, 1) as prover, pytest.raises(SystemExit, match="the cpu engine differs"):
        prover.prove({}, "hyenadna", 1000)


def test_a_wrong_id_of_another_engine_ends_it():
    class Other:
        encode = wrong(lambda self, vocabulary, batch: CpuEngine().encode(vocabulary, batch))

    with Prover(None, 1) as prover, pytest.raises(SystemExit, match="the other engine differs"):
        prover.prove({"other": Other()}, "hyenadna", 1000)


def test_processes_side_by_side_give_the_same(monkeypatch):
    monkeypatch.setattr(proofs, "PIECE_BASES", 20_000)
    rows = sequences(Shape("7 x 50", 7, 50), np.frombuffer(b"ACGTTGCA", np.uint8))
    made = []
    for processes in (1, 2):
        with Prover(None, processes) as prover:
            made.append((prover.prove({}, "nt_v2", 70_000), prover.ids("nt_v2", rows).tolist()))
    assert made[0] == made[1]
    assert made[0][0]["bases"] > 70_000
