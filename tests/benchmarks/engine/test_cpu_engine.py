"""The CPU engine's benchmark with tiny texts: what is timed was compared, and pieces are added."""

from __future__ import annotations

import gzip
import json
import os
import random
import sys

import pytest

from benchmarks.engine.cpu import cases, comparison
from benchmarks.engine.cpu.comparison import COPY, OTHER_TOKENIZERS, TINY, Task, added, measure
from benchmarks.engine.references.proofs import Differs
from benchmarks.support.corpora import FILES
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary
from vocabularies.preprocessing.pretokenizers import PRETOKENIZERS

PROSE = (
    "It was the best of times, it's said; naïve café-goers paid 1,234.50.\n Über 漢字 🙂 they'd\n"
)
FACTS = ("case", "vocabulary", "cores", "engine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    for name in ("text", "vocab", "dna"):
        (path / name).mkdir()
    for number, name in enumerate(text_files()):
        (path / "text" / name).write_text(PROSE.replace("best", "best" + "!" * number) * 9)
    ranks = write_vocabulary(load("gpt2"), "tiktoken")["vocabulary.tiktoken"]
    (path / "vocab" / "gpt2.tiktoken").write_bytes(ranks)
    described = {
        "ranks_file": "vocab/gpt2.tiktoken",
        "pat_str": PRETOKENIZERS["gpt2"].tiktoken_pattern,
    }
    (path / "vocab" / "llm_encodings.json").write_text(json.dumps({"gpt2": described}))
    for name, letters in ((cases.GENOME, "ACGT"), (cases.WITH_N, "ACGTN")):
        bases = "".join(random.Random(0).choices(letters, k=9_001))
        (path / "dna" / name).write_bytes(gzip.compress(f">x\n{bases}\n".encode()))
    return path


def text_files() -> list[str]:
    return [name for names in FILES.values() for name in names]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(cases, "TEXT_VOCABULARIES", ("gpt2",))
    monkeypatch.setattr(cases, "DNA_VOCABULARIES", ("dnabert2", "hyenadna", "mtdna6", "nt_v2"))
    monkeypatch.setattr(cases, "SHAPES", ((1, 200), (4, 300)))
    monkeypatch.setattr(cases, "LONG_TEXT_BYTES", 2_000)
    monkeypatch.setattr(comparison, "PROVED_BASES", 1_024)
    return monkeypatch


def run(folder, kinds, proved=(), **fields):
    task = Task(folder, kinds, "all", TINY, fields.get("other"), dict(proved))
    return measure(task)


@pytest.mark.slow
def test_text_is_compared_and_timed_beside_libraries(folder, small):
    measured = run(folder, ["text"], other=sys.executable)
    names = {row["case"] for row in measured.rows}
    assert names == {
        *("1 x 200 B", "4 x 300 B", "one text of 700 kB"),
        *("english", "code", "languages", "hostile"),
        *(f"{name}, first time" for name in ("english", "code", "languages", "hostile")),
    }
    first = {row["engine"] for row in measured.rows if "first time" in row["case"]}
    assert first == {"cpu engine", "fastokens", "gigatoken"}
    timed = {row["engine"] for row in measured.rows if row["status"] == "exact"}
    known = {"cpu engine", "fastokens", "tiktoken", "tokenizers", OTHER_TOKENIZERS, COPY}
    assert timed >= known
    assert {row["engine"] for row in measured.rows} == known | {"gigatoken"}
    for row in measured.rows:
        if row["status"] == "exact":
            seconds = row["seconds"]["median_s"]
            assert row["gb_per_s"] == pytest.approx(row["bytes"] / seconds / 1e9)
    assert {proof["by"] for proof in measured.proofs} == {"tiktoken"}
    again = run(folder, ["text"], measured.proved)
    assert not again.proofs


@pytest.mark.slow
def test_sequences_are_compared_with_the_reference(folder, small):
    measured = run(folder, ["dna"])
    exact = {(row["vocabulary"], row["engine"]) for row in measured.rows if "gb_per_s" in row}
    assert exact >= {
        ("dnabert2", "tokenizers"),
        ("hyenadna", "NumPy look-up"),
        ("mtdna6", "NumPy, bases A, C, G, T alone"),
        ("nt_v2", "cpu engine"),
    }
    assert all(row["status"] == "exact" for row in measured.rows)
    assert {proof["by"] for proof in measured.proofs} == {"reference"}


@pytest.mark.slow
def test_other_ids_than_those_that_were_compared_end_the_run(folder, small):
    measured = run(folder, ["dna"])
    wrong = dict.fromkeys(measured.proved, "0" * 64)
    with pytest.raises(Differs, match="other ids than before"):
        run(folder, ["dna"], wrong)


def test_a_piece_replaces_its_rows_alone():
    def row(case: str, value: int) -> dict[str, object]:
        return dict.fromkeys(FACTS, case) | {"gb_per_s": value}

    earlier = {"command": "a", "proofs": [], "cpu": [row("x", 1), row("y", 1)]}
    later = {"command": "b", "proofs": [], "cpu": [row("y", 2)]}
    document = added(earlier, later)
    assert document["cpu"] == [row("x", 1), row("y", 2)]
    assert document["command"] == "b"


def test_one_core_is_the_first_of_this_process(monkeypatch):
    chosen = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 1, 2})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: chosen.append(cores))
    for cores in comparison.CORES:
        comparison.use_cores(cores)
    assert chosen == [{1}]
