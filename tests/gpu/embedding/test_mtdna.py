"""The mtDNA model's data set and modules against its document in plain Python."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.data_files import data_bytes
from tests.support.inputs.paper_windows import paper_windows
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.sequences.mtdna import KmerVocabulary

pytestmark = pytest.mark.torch
SIX = KmerVocabulary.build(k=6)
GENOMES = ["GATCACAGGTCTATCACCCTNATTAACC", "GATTACAgattacaGATTACA", "ACGTACGT"]
LEVELS = [[number / 32 for number in range(len(genome))] for genome in GENOMES]


def make(*arguments: Any, **options: Any) -> Any:
    torch_or_skip()
    from gpu.embedding.mtdna import MtDNADataset

    return MtDNADataset(*arguments, **options)


def as_lists(dataset: Any) -> list[dict[str, list[float]]]:
    return [{name: value.tolist() for name, value in item.items()} for item in dataset]


@pytest.mark.parametrize("circle", [(True, "append"), (True, "prepend"), (False, "append")])
@pytest.mark.parametrize("add_cls", [False, True])
@pytest.mark.parametrize(("window", "stride"), [(8, 5), (40, 40), (3, 7)])
def test_items_are_the_windows_of_the_document(
    circle: tuple[bool, str], add_cls: bool, window: int, stride: int
) -> None:
    circular, junction = circle
    options = {"circular": circular, "junction": junction, "add_cls": add_cls, "stride": stride}
    dataset = make(GENOMES, SIX, window_size=window, het_level_vectors=LEVELS, **options)
    expected = []
    for genome, levels in zip(GENOMES, LEVELS, strict=True):
        expected += paper_windows(genome, window=window, levels=levels, **options)  # type: ignore[arg-type]
    starts = [each.pop("start") for each in expected]
    assert as_lists(dataset) == expected
    genomes = [dataset.genome_of(number) for number in range(len(dataset))]
    assert [number for number, start in enumerate(starts) if start == 0] == [
        genomes.index(genome) for genome in range(3)
    ]
    assert as_lists([dataset[-1]]) == expected[-1:]
    with pytest.raises(IndexError, match="window"):
        dataset[len(dataset)]


def test_a_loader_makes_batches_with_labels() -> None:
    torch = torch_or_skip()
    dataset = make(GENOMES, SIX, window_size=8, stride=8, labels=[2, None, 7])
    batches = list(torch.utils.data.DataLoader(dataset, batch_size=len(dataset)))
    assert len(batches) == 1
    assert batches[0]["input_ids"].shape == (len(dataset), 8)
    assert not batches[0]["het_values"].any()
    assert batches[0]["labels"].tolist() == [2] * 4 + [-1] * 3 + [7]


def test_genomes_are_read_from_fasta_with_their_levels(tmp_path: Path) -> None:
    torch_or_skip()
    from service.seqio.mtdna_dataset import read_mtdna_dataset

    records = "".join(f">genome{n} x\n{g}\n" for n, g in enumerate(GENOMES))
    (tmp_path / "genomes.fa.gz").write_bytes(gzip.compress(records.encode()))
    levels = tmp_path / "levels.tsv"
    levels.write_text("genome1\t20\t0.5\ngenome1\t0\t0.25\n")
    paths = [str(tmp_path / "genomes.fa.gz")]
    options: dict[str, Any] = {"window_size": 6, "stride": 6, "add_cls": True}
    dataset = read_mtdna_dataset(paths, channel=levels, **options)
    vectors = [None, [0.25, *[0.0] * 19, 0.5], None]
    assert as_lists(dataset) == as_lists(make(GENOMES, SIX, het_level_vectors=vectors, **options))
    levels.write_text("genome3\t0\t1\n")
    with pytest.raises(ValueError, match="line 1: there is no sequence"):
        read_mtdna_dataset(paths, channel=levels)


def test_a_real_genome_has_the_papers_windows(tmp_path: Path) -> None:
    torch_or_skip()
    from service.seqio.mtdna_dataset import read_mtdna_dataset

    path = tmp_path / "genome.fa"
    path.write_bytes(data_bytes("dna/mtdna_rCRS_NC_012920.1.fa"))
    dataset = read_mtdna_dataset([str(path)], junction="prepend", add_cls=True)
    assert len(dataset) == math.ceil(16569 / 256) == 65
    assert dataset[0]["input_ids"].shape == (513,)
    assert dataset[0]["position_ids"][1:7].tolist() == [16564, 16565, 16566, 16567, 16568, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_size": 0}, "window_size is 0"),
        ({"stride": 0}, "stride 0"),
        ({"labels": [1]}, "there are 1 labels for 3 genomes"),
        ({"het_level_vectors": [None]}, "no het_level_vector for genome 1"),
        ({"het_level_vectors": [None] * 4}, "more het_level_vectors than 3"),
        ({"het_level_vectors": [None, [2.0] * 21, None]}, r"genome 1: het_levels\[0\] is 2"),
        ({"junction": "middle"}, "genome 0: junction"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(GENOMES, SIX, **options)


def test_the_circular_encoding_is_the_published_formula() -> None:
    torch = torch_or_skip()
    from gpu.embedding.mtdna import CircularPositionalEncoding

    encoding = CircularPositionalEncoding(6, genome_length=10)
    expected = []
    for position in range(10):
        angle = 2 * math.pi * position / 10
        row = []
        for pair in range(3):
            turned = angle / 10000 ** (2 * pair / 6)
            row += [math.sin(turned), math.cos(turned)]
        expected.append(row)
    encoded = encoding(torch.arange(10).reshape(2, 5))
    assert encoded.shape == (2, 5, 6)
    assert torch.allclose(encoded.reshape(10, 6), torch.tensor(expected))
    assert torch.equal(encoding(torch.tensor([10, -1])), encoding(torch.tensor([0, 9])))
    assert not list(encoding.parameters())
    for size in (0, 5):
        with pytest.raises(ValueError, match=f"hidden_size is {size}"):
            CircularPositionalEncoding(size)


def test_whole_turns_close_at_the_junction() -> None:
    torch_or_skip()
    from gpu.embedding.mtdna import CircularPositionalEncoding

    def steps(whole_turns: bool) -> Any:
        """Return how far each position is from the one before it, on the circle."""
        pe = CircularPositionalEncoding(16, 1000, whole_turns=whole_turns).pe
        return (pe - pe.roll(1, 0)).norm(dim=1)

    whole, published = steps(True), steps(False)
    assert whole[0] == pytest.approx(float(whole[1]), rel=1e-3)
    assert published[0] > 100 * published[1]


def test_the_projection_is_a_linear_layer_and_a_norm() -> None:
    torch = torch_or_skip()
    from gpu.embedding.mtdna import HeteroplasmyProjection

    module = HeteroplasmyProjection(4)
    levels = torch.tensor([[0.0, 0.5, 1.0]])
    projected = module(levels)
    assert projected.shape == (1, 3, 4)
    weight, bias = module.het_projection.weight[:, 0], module.het_projection.bias
    for level, row in zip(levels[0], projected[0], strict=True):
        linear = weight * level + bias
        normed = (linear - linear.mean()) / (linear.var(unbiased=False) + 1e-5).sqrt()
        assert torch.allclose(row, normed, atol=1e-5)
