"""The experiments on miRNAs: names, tasks and splits as described, a document of every table."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

import benchmarks.training.genetic_bpe
from benchmarks.training.genetic_bpe import measure
from benchmarks.training.genetic_bpe_motifs import measure as measure_motifs_of
from benchmarks.training.mirna import banks, corpora, equations
from benchmarks.training.mirna.lookup import lookups
from benchmarks.training.mirna.matures import (
    SPECIES,
    Matures,
    read_family_seeds,
    read_matures,
    split,
    task,
)
from benchmarks.training.mirna.motif_tables import tables as tables_of_motifs
from benchmarks.training.mirna.tables import tables
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.motifs.bank import MotifBank
from vocabularies.sequences.corpus import Corpus

UNUSED = MotifBank.of(["ACGTACG"])  # The families' seeds; a quick run has no use for them.


@pytest.fixture(scope="module")
def matures(tmp_path_factory: pytest.TempPathFactory) -> Matures:
    """Make families of three species and of one; each family has its own seed."""
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


def test_names_are_parsed(tmp_path):
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


def test_seeds_of_families_are_those_of_high_confidence(tmp_path):
    path = tmp_path / "seeds.tsv"
    rows = (
        ("4", "Let-7_5p", "GAGGUAG", "NA", "Let-7", "9", "High conf"),
        ("1", "Let-7_3p", "NA", "UAUACAA", "Let-7", "9", "High conf"),
        ("1", "Mir-8_3p", "NA", "AAUACUG", "Mir-8", "1", "Low conf"),
    )
    head = ("Counts", "Family", "Seed_5p", "Seed_3p", "Core_Family", "TotalSum", "Confidence")
    path.write_text("".join("\t".join(row) + "\n" for row in (head, *rows)))
    assert [motif.sequence for motif in read_family_seeds(path).motifs] == ["GAGGTAG", "TATACAA"]
    path.write_text("Family\tSeed\nLet-7\tGAGGUAG\n")
    with pytest.raises(ValueError, match=r"seeds\.tsv: no column 'Confidence'"):
        read_family_seeds(path)


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


def test_what_is_looked_up_is_right_where_training_has_it(tmp_path):
    path = tmp_path / "matures.fa"
    many = "".join(f">Hsa-Mir-1-P{i}_5p\nUACGUACGA\n" for i in range(30))
    path.write_text(
        f"{many}>Dre-Mir-1_5p\nUACGUACGC\n>Dre-Mir-2_5p\nUACGUACGA\n"
        ">Mmu-Mir-3_5p\nUUUUUUUUU\n>Dme-Mir-1_5p\nUUUUUUUUU\n"
    )
    found = {
        (row["task"], row["domain"], row["test"]): row
        for row in lookups(read_matures(path), [0, 1])
    }
    shares = {
        key: [
            found["MultiTop50", "human", key][name]
            for name in ("majority", "known", "same", "seed")
        ]
        for key in ("own", "zebrafish", "mouse", "fly")
    }
    assert shares == {
        "own": [[1.0, 1.0]] * 4,
        "zebrafish": [[0.5, 0.5]] * 4,
        "mouse": [[0.0, 0.0]] * 4,
        "fly": [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]],
    }
    assert found["BurBary", "human", "fly"]["majority"] == [1.0, 1.0]


def test_no_distinct_sequence_stands_in_training(matures):
    twice = Matures(
        Corpus.of(2 * corpora.sequences(matures.corpus)),
        2 * matures.species,
        2 * matures.families,
    )
    for is_distinct, least, most in ((False, 0.5, 1.0), (True, 0.0, 0.0)):
        for row in lookups(twice, [0], is_distinct=is_distinct):
            if row["test"] == "own" and row["domain"] == "everywhere":
                assert least <= row["same"][0] <= most


def test_the_tables_have_the_papers_figures_beside_ours(matures, tmp_path):
    document = measure(matures, UNUSED, tmp_path, num_seeds=0, is_quick=True)
    text = tables(document)
    assert "| GeneticBPE |" in text and "(0.05)" in text and "Table 1" not in text
    preserving = document["tokenizers"]["GeneticBPE, spans preserved"]
    assert preserving["cut_out"]["distortion"][0] == 0.0
    assert preserving["cut_out"]["num_instances"] > 20


@pytest.mark.slow
def test_motifs_are_measured_on_all_and_on_distinct_sequences(matures, monkeypatch):
    monkeypatch.setattr(banks, "SHARES", (0.5,))
    monkeypatch.setattr(equations, "LAMBDAS", (2.5,))
    monkeypatch.setattr(equations, "MUS", (10.0,))
    names = ("Char-Level", "BPE", "GeneticBPE")
    accuracy = {"own": 0.9, "zebrafish": 0.8, "mouse": 0.7, "fly": 0.6}
    classifiers = {
        "machine": {"date": "2026-01-02T03:04:05"},
        "tokenizers": {name: {"by_place": {"distortion": [0.5]}} for name in names},
        "runs": [
            {"tokenizer": name, "task": name_of, "domain": "human", "accuracy": accuracy}
            for name in names
            for name_of in ("BurBary", "MultiTop50")
        ],
    }
    twice = Matures(
        Corpus.of(2 * corpora.sequences(matures.corpus)),
        2 * matures.species,
        2 * matures.families,
    )
    document = measure_motifs_of(twice, UNUSED, classifiers, names, num_draws=1)
    num_distinct = len({*corpora.sequences(matures.corpus)})
    assert document["corpora"]["all"]["sequences"] == 2 * len(matures)
    assert document["corpora"]["distinct"]["sequences"] == num_distinct
    for found in document["tokenizers"]["Char-Level"].values():
        assert (found["mean_compression"], found["distortion"][0]) == (1.0, 1.0)
    rows = document["banks"]["distinct"]
    assert len(rows) == 2 * 3 and all(0 <= row["distortion"] <= 1 for row in rows)
    assert [round(point["gap"]) for point in document["gaps"]] == [20] * 6
    assert all(0 < distance <= 1 for distance in document["discrepancies"].values())
    text = tables_of_motifs(json.loads(json.dumps(document)))
    for part in ("| GeneticBPE, distinct | ", "(0.35)", "section 6.4", "## Figure 2"):
        assert part in text
    assert " nan" not in text


def test_the_equations_by_hand():
    assert equations.capacity(4.0) == 0.5
    assert equations.domain_term(0.05) == pytest.approx(0.35)
    assert equations.objective(0.05, 4.0, 10.0) == pytest.approx(0.35 + 5.0)


@pytest.mark.torch
def test_classifiers_are_trained_on_both_tasks_and_tested_on_other_species(
    matures, tmp_path, monkeypatch
):
    torch_or_skip()
    document = measure(matures, UNUSED, tmp_path, num_seeds=2, is_quick=True)
    assert len(document["runs"]) == 2 * 2 * 2 * 2
    for run in document["runs"]:
        species = {"zebrafish", "mouse", "fly"} if run["domain"] == "human" else set()
        assert run["accuracy"].keys() == {"own"} | species
        assert all(0 <= share <= 1 for share in run["accuracy"].values())
    text = tables(document)
    for number in (1, 2, 3, 4):
        assert f"## Table {number}" in text
    assert "nan" not in text.split("## Table 4")[0]
    assert "| BurBary, human | zebrafish |" in text and " of 2 |" in text
    cells = tmp_path / "genetic_bpe_cells.jsonl"
    *others, last = cells.read_text().splitlines(keepends=True)
    cells.write_text("".join(others))
    asked = []
    monkeypatch.setattr(
        benchmarks.training.genetic_bpe,
        "results",
        lambda cells, *_, **__: asked.extend(cells) or [(cells[0], json.loads(last)["measured"])],
    )
    again = measure(matures, UNUSED, tmp_path, num_seeds=2, is_quick=True)
    assert len(asked) == 1 and again["runs"] == document["runs"]


@pytest.mark.torch
def test_a_stack_is_as_many_transformers_of_torch():
    torch = torch_or_skip()
    from benchmarks.training.mirna.model import HEADS, INNER, LAYERS, WIDTH, Classifiers

    chances = [torch.Generator().manual_seed(seed) for seed in (3, 4)]
    models = Classifiers(chances, num_ids=9, max_length=6, num_classes=5).eval()
    ids = torch.randint(1, 10, (2, 7, 6))
    ids[:, 2:5, 4:] = 0
    found = models(ids)
    for i in range(2):
        plain = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True),
            LAYERS,
            enable_nested_tensor=False,
        ).eval()
        names = {
            "self_attn.in_proj_weight": "heads.weight",
            "self_attn.in_proj_bias": "heads.bias",
            "self_attn.out_proj": "joined",
            "linear1": "wide",
            "linear2": "narrow",
            "norm1.weight": "norms.0.scale",
            "norm1.bias": "norms.0.shift",
            "norm2.weight": "norms.1.scale",
            "norm2.bias": "norms.1.shift",
        }
        weights = models.state_dict()
        state = {}
        for name, of in plain.state_dict().items():
            ours = name
            for theirs, stacked in names.items():
                ours = ours.replace(theirs, stacked)
            state[name] = torch.from_numpy(weights[ours][i].numpy().T.reshape(of.shape))
        plain.load_state_dict(state)
        is_padding = ids[i] == 0
        inside = plain(
            weights["tokens"][i][ids[i]] + weights["places"][i], src_key_padding_mask=is_padding
        )
        inside[is_padding] = 0
        pooled = inside.sum(1) / (~is_padding).sum(1, keepdim=True)
        expected = pooled @ weights["out.weight"][i] + weights["out.bias"][i]
        torch.testing.assert_close(found[i], expected)
        alone = Classifiers([torch.Generator().manual_seed(3 + i)], 9, 6, 5).eval()
        torch.testing.assert_close(alone(ids[i : i + 1])[0], found[i])
