"""Parts run small, with and without an emulated GPU, and keep what they have when time is over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.papers import __main__, blockbpe, dnatok, gputok
from benchmarks.papers.dna_ways import host_ways, rows_of
from benchmarks.papers.session import Differs, Part, Rows, Session, run_part
from benchmarks.papers.text_ways import TextWays
from tests.benchmarks.papers.emulated_kernels import EmulatedBlockMerges
from tests.support.emulation.device import EmulatedDevice

TEXT = 'There were 1000 eggs in "three" baskets .\n\nHe \'s gone ; 3/4 of them hatched . \n' * 12


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / "text").mkdir()
    for name in ("wikitext2_test.raw.txt", "war_and_peace.txt"):
        (tmp_path / "text" / name).write_text(TEXT)
    return Session(tmp_path, slice_s=0.0, log=lambda _: None)


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gputok, "LENGTHS", (32,))
    monkeypatch.setattr(gputok, "WINDOWS", 2)
    monkeypatch.setattr(blockbpe, "BATCHES", (2,))
    monkeypatch.setattr(blockbpe, "LENGTHS", (64,))


@pytest.mark.slow
def test_without_a_gpu_libraries_and_our_engine_are_timed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    rows = [*gputok.sweep_rows(session), *blockbpe.grid_rows(session)]
    assert {"HF tokenizers", "warptok CPU"} <= {row["way"] for row in rows}
    [similar] = gputok.similarity_rows(session)
    assert similar["different_whole"] == 1
    assert 0.8 < similar["similarity_whole"] < 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the kernels")
def test_with_a_gpu_kernels_are_proved_and_timed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    monkeypatch.setattr(TextWays, "kernels", EmulatedBlockMerges())
    session.gpu = GpuWays(EmulatedDevice(1 << 32), 1 << 28)
    rows = [*gputok.sweep_rows(session), *blockbpe.grid_rows(session)]
    ways = {row["way"] for row in rows if "way" in row}
    for name in ("warptok GPU, kernels", "GPUTok optimized", "BlockBPE, 256 threads"):
        assert name in ways
    [minima] = [row for row in rows if row["table"] == "local minima"]
    assert 0 <= minima["share_different"] <= 1


def test_ids_of_dna_ways_are_equal(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dnatok, "CONFIGURATIONS", {"standard": (4, 30)})
    monkeypatch.setattr(dnatok, "BATCHES", ())
    monkeypatch.setattr(dnatok, "LENGTHS", (20,))
    monkeypatch.setattr(dnatok, "SWEEP_BATCH", 3)
    rows = [*dnatok.encode_rows(session)]
    assert len(rows) == 2 * len(host_ways(session))
    assert {row["ids"] for row in rows} == {120, 60}
    assert rows_of(2, 9) == rows_of(2, 9)


def test_a_part_keeps_its_rows_when_its_time_is_over(session: Session) -> None:
    ended = []

    def rows(_: Session) -> Rows:
        try:
            yield {"row": 1}
            yield {"row": 2}
        finally:
            ended.append(True)

    part = Part("endless", "gputok", "none", "cpu", 1, rows)
    measured = run_part(part, session, -1)
    assert measured.rows == [{"row": 1}] and not measured.is_complete and ended == [True]
    assert run_part(part, session, 60).is_complete


def test_the_command_keeps_earlier_parts_and_leaves_out_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "papers.json"
    out.write_text(json.dumps({"parts": {"sweep": {"rows": [{"kept": 1}]}}}))
    arguments = ["mtdna", "--data", str(tmp_path), "--out", str(out), "--without-gpu"]
    __main__.main(arguments)
    parts = json.loads(out.read_text())["parts"]
    assert parts["sweep"]["rows"] == [{"kept": 1}]
    assert parts["windows"]["rows"] == []
    assert any("rCRS" in words for words in parts["windows"]["left_out"])
    assert parts["windows"]["machine"]["cores"] > 0


def test_a_part_that_fails_keeps_its_rows_and_does_not_end_the_run(session: Session) -> None:
    def fails(_: Session) -> Rows:
        yield {"row": 1}
        raise RuntimeError("no")

    part = Part("fails", "gputok", "none", "cpu", 1, fails)
    found = __main__.measure([part], session, 1)
    assert found["fails"]["rows"] == [{"row": 1}]
    assert found["fails"]["left_out"] == ["fails, after 1 rows: RuntimeError('no')"]


def test_a_part_with_wrong_ids_has_no_rows(session: Session) -> None:
    def differs(_: Session) -> Rows:
        yield {"row": 1}
        raise Differs("other ids")

    part = Part("differs", "gputok", "none", "cpu", 1, differs)
    found = __main__.measure([part], session, 1)
    assert found["differs"]["error"] == "other ids" and not found["differs"]["rows"]
    kept = __main__.document_of({"parts": {"differs": {"rows": [1]}}}, found, {}, "command")
    assert kept["parts"]["differs"]["rows"] == [1]
