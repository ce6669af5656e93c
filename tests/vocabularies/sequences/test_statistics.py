"""Vocabulary statistics against the tables of the paper, counted by a plain loop."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data_files import records
from vocabularies.builtin import load
from vocabularies.sequences.mtdna import KmerVocabulary
from vocabularies.sequences.statistics import TokenCounter, vocabulary_statistics
from vocabularies.sequences.statistics_plot import plot

SIX = KmerVocabulary.build(k=6)
TWO = KmerVocabulary.build(k=2)


def words_of(sequence: str, k: int, circular: bool) -> list[str]:
    """List the k-mers as the paper does: with the last k - 1 bases in front of a circle."""
    sequence = sequence.upper()
    if circular:
        sequence = sequence[len(sequence) - k + 1 :] + sequence
    words = [sequence[i : i + k] for i in range(len(sequence) - k + 1)]
    return [word if set(word) <= set("ACGT") else "[UNK]" for word in words]


@given(
    sequences=st.lists(st.text("ACGTacgtN", min_size=2, max_size=30), max_size=5),
    circular=st.booleans(),
)
def test_figures_are_those_of_a_loop(sequences: list[str], circular: bool) -> None:
    found = vocabulary_statistics(sequences, TWO, circular=circular)
    rows = [words_of(sequence, 2, circular) for sequence in sequences]
    counted = Counter(word for row in rows for word in row)
    unknown = counted.pop("[UNK]", 0)
    assert found.num_tokens == counted.total() + unknown
    assert found.num_unknown == unknown
    assert found.unknown_share == unknown / max(1, counted.total() + unknown)
    assert (found.num_seen, found.num_possible) == (len(counted), 16)
    assert found.share_seen == len(counted) / 16
    assert found.lengths == Counter(map(len, rows))
    assert found.mean_tokens == sum(map(len, rows)) / max(1, len(rows))
    wanted = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    assert [(each.token, each.count) for each in found.most_frequent(5)] == wanted[:5]
    assert found.never_seen() == sorted({a + b for a in "ACGT" for b in "ACGT"} - set(counted))


def test_a_genome_has_the_papers_number_of_tokens() -> None:
    found = vocabulary_statistics(records("dna/mtdna_rCRS_NC_012920.1.fa"), SIX)
    assert found.mean_tokens == 16564
    assert found.num_possible == 4096
    assert found.num_unknown == 6  # The six 6-mers over the N at 3107.
    assert found.unknown_share < 0.001


def test_vocabularies_without_kmers_count_their_tokens() -> None:
    vocabulary = load("gpn")
    counter = TokenCounter(vocabulary)
    counter.add(np.array([3, 3, 4], np.uint8), np.array([2, 1]))
    found = counter.statistics()
    assert (found.unit, found.num_tokens, found.lengths) == ("tokens", 3, {2: 1, 1: 1})
    assert found.num_possible == len(vocabulary) - len(vocabulary.special_tokens)
    assert sum(each.share for each in found.most_frequent()) == pytest.approx(1)


@pytest.mark.parametrize("sequences", [[], ["ACGTACGTN" * 20, "ACG", "GATTACA"]])
def test_the_plot_is_a_document_with_every_figure(sequences: list[str]) -> None:
    found = vocabulary_statistics(sequences, TWO)
    drawn = plot(found)
    texts = ["".join(element.itertext()) for element in ElementTree.fromstring(drawn)]
    assert all(each.token in texts for each in found.most_frequent())
    assert drawn == plot(found)
