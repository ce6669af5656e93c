"""The metrics equal their definitions, and obey or refute GeneticBPE's Proposition 3.4.

The proposition: with mu > lambda the distortion never rises, and merging ends with the wanted
compression after at most v - |A| merges. Below is where that holds and where it does not.
"""

from itertools import pairwise, product
from math import isnan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.training.textbook import penalty, textbook
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.motifs.bank import MotifBank, Spans, choose_spans, find_spans
from vocabularies.motifs.metrics import MAX_K, MotifMetrics, measure_motifs
from vocabularies.reference.tokenizer import encode
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.layout import corpus_spans
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

ROWS = st.lists(st.text("ACG", max_size=30), min_size=1, max_size=4)
BANKS = st.lists(st.text("ACG", min_size=2, max_size=5), min_size=1, max_size=4).map(MotifBank.of)


def tokens_of(rows: list[str], vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens' begins and ends in the joined corpus."""
    found, begin = [], 0
    for row in rows:
        found += [(begin + b, begin + e) for b, e in encode(vocabulary, row).spans]
        begin += len(row)
    array = np.array(found, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def measured(rows: list[str], vocabulary: Vocabulary, spans: Spans) -> MotifMetrics:
    return measure_motifs(Corpus.of(rows), spans, *tokens_of(rows, vocabulary))


def pairs(spans: Spans) -> list[tuple[int, int]]:
    return list(zip(spans.begins.tolist(), spans.ends.tolist(), strict=True))


def whole_in(span: tuple[int, int], tokens: list[tuple[int, int]], k: int) -> bool:
    """Return whether an instance is inside k consecutive tokens without gaps (Definition 3.1)."""
    for i, n in product(range(len(tokens)), range(1, k + 1)):
        chain = tokens[i : i + n]
        if any(a[1] != b[0] for a, b in pairwise(chain)):
            continue
        if chain[0][0] <= span[0] and span[1] <= chain[-1][1]:
            return True
    return False


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def same(one: float, other: float) -> bool:
    return (isnan(one) and isnan(other)) or abs(one - other) < 1e-12


@given(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=3), st.data())
def test_metrics_are_their_definitions(lengths, data):
    """Tokens of 1 to 3 letters; 0 is a letter that no token has."""
    corpus = Corpus.of(["A" * sum(max(1, n) for n in row) for row in lengths])
    tokens, place = [], 0
    for row in lengths:
        for n in row:
            if n:
                tokens.append((place, place + n))
            place += max(1, n)
    possible = [
        (b, e)
        for begin, end in pairwise(corpus.offsets.tolist())
        for b in range(begin, end)
        for e in range(b + 2, min(end, b + 7) + 1)
    ]
    chosen = sorted(data.draw(st.sets(st.sampled_from(possible)))) if possible else []
    array = np.array(chosen, np.int64).reshape(-1, 2)
    spans = Spans(array[:, 0], array[:, 1], np.zeros(len(array), np.int32), array[:, 0])
    token_array = np.array(tokens, np.int64).reshape(-1, 2)
    metrics = measure_motifs(corpus, spans, token_array[:, 0], token_array[:, 1])
    rows = list(pairwise(corpus.offsets.tolist()))
    for k in range(1, MAX_K + 1):
        by_row = [
            mean([not whole_in(span, tokens, k) for span in chosen if b <= span[0] < e])
            for b, e in rows
        ]
        expected = mean([share for share in by_row if not isnan(share)])
        assert same(metrics.distortion[k - 1], expected)
    assert same(metrics.preserved, mean([whole_in(span, tokens, 1) for span in chosen]))
    crossings = [
        sum(
            penalty(*token, [(*span, 1)], "split") * (token[0] < border < token[1])
            for token in tokens
            for border in span
        )
        for span in chosen
    ]
    assert metrics.boundary_violations == sum(crossings)
    assert same(metrics.split_rate, mean([number > 0 for number in crossings]))
    numbers = [sum(b <= token[0] < e for token in tokens) for b, e in rows]
    per_row = [(e - b) / n for (b, e), n in zip(rows, numbers, strict=True) if n]
    assert same(metrics.mean_compression, mean(per_row))
    assert metrics.num_tokens == len(tokens)


def test_metrics_by_hand():
    corpus, spans = Corpus.of(["AACGTTA", "ACG"]), find_spans
    found = spans(MotifBank.of(["ACG", "TT"]), corpus.data, corpus.offsets)
    # A ACG T TA and AC G: the first ACG is whole, TT is split, the second ACG needs two.
    tokens = np.array([(0, 1), (1, 4), (4, 5), (5, 7), (7, 9), (9, 10)])
    metrics = measure_motifs(corpus, found, tokens[:, 0], tokens[:, 1])
    assert metrics.distortion == (0.75, 0.0, 0.0, 0.0)
    assert (metrics.preserved, metrics.split_rate) == (1 / 3, 1 / 3)
    assert (metrics.boundary_violations, metrics.fertility) == (1, 5 / 3)
    assert (metrics.compression, metrics.mean_compression) == (10 / 6, (7 / 4 + 3 / 2) / 2)
    assert metrics.tokens_per_sequence == 3


def test_k_mers_that_overlap():
    corpus = Corpus.of(["ACGTACGT"])
    spans = find_spans(MotifBank.of(["GT", "CGTA"]), corpus.data, corpus.offsets)
    begins = np.arange(6)
    metrics = measure_motifs(corpus, spans, begins, begins + 3)
    assert metrics.distortion[:2] == (1 / 3, 0.0)


def prefixes(rows: list[str], options: TrainingOptions, bank: MotifBank | None) -> list[Vocabulary]:
    """Yield the vocabulary after no merge, after one, and so on."""
    found = []
    for number in range(100):
        asked = iter(range(number))
        training = train(
            Corpus.of(rows),
            options,
            motifs=bank,
            should_stop=lambda asked=asked: next(asked, None) is None,
        )
        found.append(training.vocabulary)
        if training.ending != "stopped":
            break
    return found


@given(ROWS.filter(any), BANKS, st.sampled_from(["global", "span_preserving"]), st.data())
def test_distortion_by_its_definition_never_rises_for_any_weights(rows, bank, rule, data):
    """True, and trivially so: tokens only grow. Every BPE has it, with any lambda and mu."""
    weights = {} if rule == "span_preserving" else {"motif_weight": 2.5, "penalty_weight": 0.5}
    options = TrainingOptions(14, merge_rule=rule, alphabet="ACG", merge_harmful=True, **weights)
    corpus = Corpus.of(rows)
    spans = find_spans(bank, corpus.data, corpus.offsets)
    found = [measured(rows, v, spans).distortion for v in prefixes(rows, options, bank)]
    for before, after in pairwise(found):
        assert all(not b < a for b, a in zip(before, after, strict=True))


def test_splits_do_rise_under_equation_9_although_mu_is_larger_than_lambda():
    """False, where distortion means what the paper's tables print (0 for single letters).

    CA splits the motif ACG once and stands 20 times elsewhere: it scores 21 - 10, and is merged.
    """
    rows = ["CACG", *["CA"] * 20]
    options = TrainingOptions(20, motif_weight=2.5, penalty_weight=10)
    corpus, bank = Corpus.of(rows), MotifBank.of(["ACG"])
    spans = find_spans(bank, corpus.data, corpus.offsets)
    rates = [measured(rows, v, spans).split_rate for v in prefixes(rows, options, bank)]
    assert rates[0] == 0
    assert max(rates) == 1


@given(ROWS.filter(any), BANKS, st.booleans())
def test_nothing_is_split_where_mu_outweighs_every_frequency(rows, bank, has_region):
    """Equation 9 ensures this if mu > (1 + lambda) times the frequency of any pair."""
    region = (2, 4) if has_region else None
    options = TrainingOptions(
        12, motif_weight=2.5, penalty_weight=1000, min_frequency=1, seed_region=region
    )
    spans = corpus_spans(Corpus.of(rows), bank, region)
    metrics = [measured(rows, v, spans) for v in prefixes(rows, options, bank)]
    assert all(m.boundary_violations == 0 for m in metrics)


@given(ROWS.filter(any), BANKS, st.integers(0, 2**32))
def test_span_preserving_splits_no_motif_that_was_cut_out(rows, bank, seed):
    """True by construction, in texts that were not trained on as well: delta is 0."""
    options = TrainingOptions(30, merge_rule="span_preserving", alphabet="ACG", min_frequency=1)
    vocabulary = train(Corpus.of(rows), options, motifs=bank).vocabulary
    others = ["".join(np.random.default_rng(seed).choice([*"ACG"], 40))]
    for texts in (rows, others):
        corpus = Corpus.of(texts)
        spans = choose_spans(find_spans(bank, corpus.data, corpus.offsets))
        metrics = measured(texts, vocabulary, spans)
        assert metrics.boundary_violations == 0
        if len(spans):
            assert (metrics.distortion, metrics.preserved) == ((0.0,) * MAX_K, 1.0)


def test_overlapping_motifs_cannot_all_be_whole():
    """In ACGTA, ACG is cut out, which splits the overlapping motif GTA."""
    bank = MotifBank.of(["ACG", "GTA"])
    rows = ["ACGTA"]
    vocabulary = train(
        Corpus.of(rows), TrainingOptions(20, merge_rule="span_preserving"), motifs=bank
    ).vocabulary
    spans = find_spans(bank, Corpus.of(rows).data, Corpus.of(rows).offsets)
    metrics = measured(rows, vocabulary, spans)
    assert (metrics.preserved, metrics.split_rate) == (0.5, 0.5)


def test_the_size_may_be_reached_without_the_compression():
    """The second half of the proposition is false: the two limits are not reached together."""
    options = {"min_compression": 4.0, "motif_weight": 1, "penalty_weight": 2, "min_frequency": 1}
    rows = ["ACGTACGTCCATGACGTGTCAACGTAGCT"]
    either = train(Corpus.of(rows), TrainingOptions(8, stop="either", **options))
    both = train(Corpus.of(rows), TrainingOptions(8, stop="both", **options))
    assert (either.ending, len(either.vocabulary)) == ("size", 8)
    assert either.compression < 4 <= both.compression
    assert (both.ending, len(both.vocabulary)) == ("both", 16)
    learnt = textbook(rows, "ACGT", [[]], TrainingOptions(8, stop="both", **options))
    assert len(both.merges) == len(learnt.merges)
