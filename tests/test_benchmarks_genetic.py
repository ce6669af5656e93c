"""The experiments on miRNAs: names, tasks and splits as described, a document of every table."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from benchmarks.genetic_bpe import measure
from benchmarks.mature_mirnas import SPECIES, Matures, read_matures, split, task
from benchmarks.mirna_tables import tables


@pytest.fixture(scope="module")
def matures(tmp_path_factory: pytest.TempPathFactory) -> Matures:
    """Families of three species and of one; those of a family have the same seed."""
    source = random.Random(5)
    lines = []
    for number in range(54):
        seed = "".join(source.choices("ACGU", k=7))
        for species in SPECIES.values() if number % 9 else ("Hsa",):
            for member in range(5 if species == "Hsa" else 1):
                rest = "".join(source.choices("ACGU", k=source.randint(11, 15)))
                lines.append(f">{species}-Mir-{number}-P{member}_5p\nU{seed}{rest}\n")
    path = tmp_path_factory.mktemp("matures") / "matures.fa"
    path.write_text("".join(lines))
    return read_matures(path)


def test_names_are_taken_apart(tmp_path):
    path = tmp_path / "matures.fa"
    names = ("Hsa-Let-7-P1c_5p", "Cin-Let-7-P2o1-v1_5p", "Asu-Bantam-o1_3p*", "Hsa-Novel-3_3p")
    path.write_text("".join(f">{name}\nACGU\nACG\n" for name in names))
    found = read_matures(path)
    assert found.families == ("Let-7", "Let-7", "Bantam", "Hsa-Novel-3")
    assert found.species == ("Hsa", "Cin", "Asu", "Hsa")
    assert found.corpus.data.tobytes() == b"ACGTACG" * 4
    path.write_text(">something else\nACGU\n")
    with pytest.raises(ValueError, match="something else"):
        read_matures(path)


def test_a_conserved_family_is_in_more_than_two_species(matures):
    found = task(matures, "BurBary")
    numbers = [int(family.removeprefix("Mir-")) for family in matures.families]
    assert found.labels.tolist() == [int(number % 9 != 0) for number in numbers]
    multi = task(matures, "MultiTop50")
    assert multi.num_classes == 50 == len({*multi.labels.tolist()})


def test_a_split_has_every_row_once_and_a_tenth_of_each_class():
    labels = np.repeat([0, 1, 2], [100, 50, 33])
    parts = split(labels, 3)
    assert sorted(np.concatenate(parts).tolist()) == [*range(183)]
    for part in parts[1:]:
        assert np.bincount(labels[part]).tolist() == [10, 5, 3]
    assert not np.array_equal(parts[2], split(labels, 4)[2])


def test_the_tables_have_the_papers_figures_beside_ours(matures):
    document = measure(matures, num_seeds=0, is_quick=True)
    text = tables(document)
    assert "| GeneticBPE |" in text and "(0.05)" in text and "Table 1" not in text
    preserving = document["tokenizers"]["GeneticBPE, spans preserved"]
    assert preserving["cut_out"]["distortion"][0] == 0.0
    assert preserving["cut_out"]["num_instances"] > 20


def test_classifiers_are_trained_on_both_tasks_and_tested_on_other_species(matures):
    if os.environ.get("REQUIRE_TORCH") != "1":
        pytest.importorskip("torch")
    document = measure(matures, num_seeds=1, is_quick=True)
    assert len(document["runs"]) == 3 * 2 * 2
    for run in document["runs"]:
        species = {"zebrafish", "mouse", "fly"} if run["domain"] == "human" else set()
        assert run["accuracy"].keys() == {"own"} | species
        assert all(0 <= share <= 1 for share in run["accuracy"].values())
    text = tables(document)
    for number in (1, 2, 3, 4):
        assert f"## Table {number}" in text
    assert "nan" not in text.split("## Table 4")[0]
