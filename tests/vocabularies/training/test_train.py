"""Training equals Algorithm 1 written plainly and, without motifs, `tokenizers`' trainer."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, trainers

from tests.support.training.textbook import Learnt, bonus, penalty, textbook
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.motifs.bank import Motif, MotifBank, choose_spans, find_spans
from vocabularies.reference.tokenizer import encode
from vocabularies.sequences.corpus import Corpus
from vocabularies.training import pair_table
from vocabularies.training.layout import corpus_spans
from vocabularies.training.options import TrainingOptions
from vocabularies.training.span_scores import MAX_LEVELS, SpanScores
from vocabularies.training.train import Training, train

ROWS = st.lists(
    st.text("AC", max_size=30) | st.text("ACGT", max_size=30) | st.text("ACGTN", max_size=12),
    max_size=5,
)
BANKS = st.lists(st.text("ACGT", min_size=2, max_size=5), min_size=1, max_size=6).map(MotifBank.of)
OPTIONS = st.builds(
    TrainingOptions,
    vocabulary_size=st.integers(6, 30),
    min_frequency=st.integers(1, 3),
    max_token_length=st.none() | st.integers(2, 6),
    motif_weight=st.sampled_from([0.0, 0.5, 2.5]),
    penalty_weight=st.sampled_from([0.0, 1.0, 10.0]),
    min_compression=st.none() | st.sampled_from([1.0, 1.5, 2.125]),
    stop=st.sampled_from(["either", "both"]),
    seed_region=st.none() | st.just((2, 4)),
    penalty=st.sampled_from(["count", "binary"]),
    crossing=st.sampled_from(["split", "any"]),
    merge_harmful=st.booleans(),
    alphabet=st.just("ACGT"),
)


def row_spans(corpus: Corpus, bank: MotifBank | None, options: TrainingOptions, confidence=None):
    """Return the spans of each sequence in its own positions."""
    spans = corpus_spans(corpus, bank, options.seed_region, confidence)
    columns = (spans.begins.tolist(), spans.ends.tolist(), spans.weights.tolist())
    return [
        [(b - begin, e - begin, w) for b, e, w in zip(*columns, strict=True) if begin <= b < end]
        for begin, end in pairwise(corpus.offsets.tolist())
    ]


def assert_equal(training: Training, learnt: Learnt) -> None:
    assert [tuple(merge) for merge in training.merges] == learnt.merges
    assert list(training.vocabulary.tokens) == learnt.tokens
    assert training.ending == learnt.ending


@given(ROWS, st.none() | BANKS, OPTIONS, st.data())
def test_training_equals_the_textbook(rows, bank, options, data):
    corpus = Corpus.of(rows)
    numbers = st.lists(
        st.sampled_from([0, 300, 1000]),
        min_size=len(corpus.data),
        max_size=len(corpus.data),
    )
    confidence = data.draw(st.none() | numbers.map(lambda values: np.array(values, np.int64)))
    training = train(corpus, options, motifs=bank, confidence=confidence)
    spans = row_spans(corpus, bank, options, confidence)
    learnt = textbook(rows, "ACGT", spans, options)
    assert_equal(training, learnt)
    num_tokens = sum(map(len, learnt.rows))
    assert training.compression == len(corpus.data) / max(1, num_tokens)


@given(st.text("AC", min_size=1, max_size=200), BANKS, st.integers(1, 3), st.booleans())
def test_candidates_chosen_anew_again_and_again_change_nothing(row, bank, number, harmful):
    """Scores rise, too: an occurrence that crosses a border goes."""
    corpus = Corpus.of([row])
    options = TrainingOptions(
        40, min_frequency=1, motif_weight=1, penalty_weight=3, merge_harmful=harmful
    )
    expected = train(corpus, options, motifs=bank)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_table, "NUM_CANDIDATES", number)
        patch.setattr(pair_table, "MAX_CANDIDATES", number + 2)
        assert train(corpus, options, motifs=bank).merges == expected.merges


def test_the_most_frequent_motifs_by_weight_become_tokens():
    """Where they would be cut out: ACG four times, AC once."""
    bank = MotifBank((Motif("ACG"), Motif("AC"), Motif("GTT", weight=4000), Motif("TTT")))
    corpus = Corpus.of(["ACGACGACGAC", "GTT", "GACG"])
    for number, motifs in ((1, ("ACG",)), (2, ("ACG", "GTT")), (3, ("AC", "ACG", "GTT"))):
        options = TrainingOptions(20, merge_rule="span_preserving", motif_tokens=number)
        assert train(corpus, options, motifs=bank).vocabulary.motifs == motifs


@given(
    ROWS.filter(any),
    st.none() | BANKS,
    st.integers(1, 3),
    st.none() | st.integers(3, 6),
    st.integers(6, 40),
)
def test_without_motifs_or_weights_equals_the_trainer_of_tokenizers(
    rows, bank, min_frequency, longest, size
):
    options = TrainingOptions(
        size, min_frequency, longest, motif_weight=0, penalty_weight=0, min_compression=None
    )
    training = train(Corpus.of(rows), options, motifs=bank)
    vocab, merges = hf_training(rows, size, min_frequency, longest)
    assert [token.decode() for token in training.vocabulary.tokens] == vocab
    tokens = training.vocabulary.tokens
    ours = [(tokens[m.left].decode(), tokens[m.right].decode()) for m in training.merges]
    assert ours == merges


def hf_training(rows, size, min_frequency, longest):
    """Train with tokenizers, whose longest token is one letter shorter than its limit."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=["[UNK]"],
        show_progress=False,
        max_token_length=None if longest is None else longest + 1,
    )
    tokenizer.train_from_iterator(rows, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]


@given(ROWS.filter(any), st.integers(2, 5), st.integers(8, 40))
def test_sequences_that_count_several_times_are_as_if_repeated(rows, times, size):
    corpus = Corpus.of(rows)
    counts = np.arange(len(rows)) % times + 1
    counted = train(Corpus(corpus.data, corpus.offsets, counts), TrainingOptions(size))
    repeated = [row for row, count in zip(rows, counts, strict=True) for _ in range(count)]
    training = train(Corpus.of(repeated), TrainingOptions(size))
    assert counted.merges == training.merges
    assert counted.compression == training.compression


@given(ROWS.filter(any), BANKS, st.none() | st.integers(1, 3), st.data())
def test_span_preserving_is_plain_training_between_the_motifs(rows, bank, number, data):
    rows = [row.replace("T", "U") for row in rows] if data.draw(st.booleans()) else rows
    options = TrainingOptions(
        30, alphabet="ACGTU", merge_rule="span_preserving", motif_tokens=number
    )
    corpus = Corpus.of(rows)
    training = train(corpus, options, motifs=bank)
    motifs = training.vocabulary.motifs
    assert len(motifs) == min(len(bank), number or len(bank))
    kept = MotifBank.of(motifs)
    spans = choose_spans(find_spans(kept, corpus.data, corpus.offsets))
    cuts = sorted({*corpus.offsets.tolist(), *spans.begins.tolist(), *spans.ends.tolist()})
    whole = {*spans.begins.tolist()}
    letters = "".join(rows)
    pieces = [letters[b:e] for b, e in pairwise(cuts) if b not in whole]
    first = tuple(motif.encode() for motif in motifs)
    learnt = textbook(pieces, "ACGTU", [[]] * len(pieces), options, len(spans), first, len(letters))
    assert_equal(training, learnt)
    encoded = sum(len(encode(training.vocabulary, row).ids) for row in rows)
    assert training.compression == len(letters) / encoded


@given(ROWS.filter(any), st.none() | BANKS, OPTIONS)
def test_encoding_the_corpus_gives_the_tokens_it_was_learnt_with(rows, bank, options):
    training = train(Corpus.of(rows), options, motifs=bank)
    learnt = textbook(rows, "ACGT", row_spans(Corpus.of(rows), bank, options), options)
    for row, tokens in zip(rows, learnt.rows, strict=True):
        expected = [(max(token_id, 0), begin, end) for token_id, begin, end in tokens]
        row_encoded = encode(training.vocabulary, row)
        assert [
            (i, *s) for i, s in zip(row_encoded.ids, row_encoded.spans, strict=True)
        ] == expected


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(2, 8), st.integers(1, 3)), max_size=8),
    st.sampled_from(["split", "any"]),
)
def test_scores_of_stretches_are_those_of_the_definition(triples, crossing):
    spans = sorted((begin, begin + length, 500 * weight) for begin, length, weight in triples)
    columns = np.array(spans, np.int64).reshape(-1, 3).T
    scores = SpanScores(*columns, 30, crossing)
    pairs = [(b, e) for b in range(29) for e in range(b + 2, 30)]
    bonuses, penalties = scores.measure(*np.array(pairs).T)
    assert bonuses.tolist() == [bonus(b, e, spans) for b, e in pairs]
    assert penalties.tolist() == [penalty(b, e, spans, crossing) for b, e in pairs]


def test_a_training_is_continued_where_it_was_stopped(tmp_path):
    rng = np.random.default_rng(7)
    rows = ["".join(rng.choice([*"ACGT"], 200)) for _ in range(10)]
    corpus, bank = Corpus.of(rows), MotifBank.of(["ACGT", "GGA", "CAT"])
    for options in (
        TrainingOptions(60, motif_weight=1, penalty_weight=0.25),
        TrainingOptions(60, merge_rule="span_preserving"),
    ):
        state = tmp_path / options.merge_rule
        whole = train(corpus, options, motifs=bank)
        for limit in (0, 3, 11, 20):
            asked = iter(range(limit))
            part = train(
                corpus,
                options,
                motifs=bank,
                state=state,
                should_stop=lambda asked=asked: next(asked, None) is None,
            )
            assert part.ending == "stopped"
            assert part.merges == whole.merges[: len(part.merges)]
        rest = train(corpus, options, motifs=bank, state=state)
        assert (rest.merges, rest.vocabulary) == (whole.merges, whole.vocabulary)
        assert train(corpus, options, motifs=bank, state=state).merges == whole.merges


def test_another_training_or_a_damaged_file_is_not_continued(tmp_path):
    state = tmp_path / "state"
    corpus = Corpus.of(["ACGACG"])
    train(corpus, TrainingOptions(8), state=state)
    for name, other, options in (
        ("options", corpus, TrainingOptions(9)),
        ("corpus", Corpus.of(["ACGACT"]), TrainingOptions(8)),
    ):
        with pytest.raises(VocabularyError, match=f"another {name}"):
            train(other, options, state=state)
    with pytest.raises(OSError, match="No such file"):
        train(corpus, TrainingOptions(8), state=tmp_path / "nowhere" / "state")
    for damaged in (b"", b"PK\x03\x04", state.read_bytes()[:-60]):
        state.write_bytes(damaged)
        with pytest.raises(VocabularyError, match="not the state of a training"):
            train(corpus, TrainingOptions(8), state=state)


def test_progress_is_reported_at_the_end_at_least():
    seen = []
    training = train(Corpus.of(["ACGACGACG", "ACG"]), TrainingOptions(6), progress=seen.append)
    assert training.ending == "size"
    assert (seen[-1].num_ids, seen[-1].fraction, seen[-1].compression) == (6, 1.0, 12 / 4)
    assert training.vocabulary.tokens == (b"[UNK]", b"A", b"C", b"G", b"AC", b"ACG")


@settings(max_examples=30)
@given(ROWS.filter(any), BANKS, st.sampled_from(["global", "span_preserving"]))
def test_files_of_what_was_learnt_give_the_same_ids(rows, bank, rule):
    options = TrainingOptions(30, merge_rule=rule, alphabet="ACGT")
    vocabulary = train(Corpus.of(rows), options, motifs=bank).vocabulary
    [canonical] = write_vocabulary(vocabulary, "canonical").values()
    assert read_vocabulary({"v": canonical}) == vocabulary
    document = tokenizer_json(vocabulary)
    assert read_vocabulary({"tokenizer.json": document.encode()}) == vocabulary
    library = Tokenizer.from_str(document)
    for row in [*rows, "".join(rows)[::-1]]:
        assert library.encode(row).ids == encode(vocabulary, row).ids


def test_weights_that_overflow_a_score_are_refused():
    corpus, bank = Corpus.of(["ACG" * 10]), MotifBank((Motif("ACG", weight=1_000_000),))
    counts = Corpus(corpus.data, corpus.offsets, np.array([10**9]))
    with pytest.raises(VocabularyError, match="too large"):
        train(counts, TrainingOptions(penalty_weight=1000), motifs=bank)


def test_runs_of_one_letter():
    for number in range(1, 40):
        options = TrainingOptions(20, min_frequency=1)
        learnt = textbook(["A" * number], "A", [[]], options)
        assert_equal(train(Corpus.of(["A" * number]), options), learnt)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size"),
        ({"motif_weight": 0.0001}, "motif_weight"),
        ({"penalty_weight": -1}, "penalty_weight"),
        ({"penalty_weight": float("nan")}, "penalty_weight"),
        ({"min_compression": 0.5}, "min_compression"),
        ({"stop": "never"}, "stop"),
        ({"merge_rule": "spans"}, "merge_rule"),
        ({"seed_region": (8, 2)}, "seed_region"),
        ({"seed_region": (2, 8), "merge_rule": "span_preserving"}, "seed_region"),
        ({"motif_tokens": 3}, "motif_tokens"),
        ({"alphabet": "AA"}, "alphabet"),
        ({"special_tokens": ("[UNK]", "[UNK]")}, "special_tokens[1]"),
        ({"special_tokens": ("A",)}, "special_tokens[0]"),
    ],
)
def test_wrong_options_are_named(options, place):
    with pytest.raises(VocabularyError) as caught:
        TrainingOptions(**options)
    assert [finding.where for finding in caught.value.findings] == [place]


def test_what_cannot_be_learnt_is_refused():
    corpus = Corpus.of(["ACGU", "ACGT"])
    spans = TrainingOptions(merge_rule="span_preserving", t_and_u="apart")
    bank = MotifBank.of(["ACG", "CGT"])
    special = TrainingOptions(special_tokens=("[UNK]", "ACG"))
    cut_out = {"merge_rule": "span_preserving"}
    cases = [
        (Corpus.of([]), TrainingOptions(), None, "corpus"),
        (corpus, spans, None, "motifs"),
        (corpus, spans, bank, "corpus"),
        (Corpus.of(["ACGT"]), replace(spans, vocabulary_size=6), bank, "vocabulary_size"),
        (Corpus.of(["ACGT"]), TrainingOptions(4), None, "vocabulary_size"),
        (corpus, replace(special, special_tokens=("[UNK]", "AC")), None, "special_tokens[1]"),
        (Corpus.of(["ACGT"]), replace(special, **cut_out), bank, "special_tokens[1]"),
    ]
    for corpus, options, motifs, place in cases:
        with pytest.raises(VocabularyError) as caught:
            train(corpus, options, motifs=motifs)
        assert [finding.where for finding in caught.value.findings] == [place]
    not_learnt = replace(special, special_tokens=("[UNK]", "GTA"))
    assert len(train(Corpus.of(["ACGT"] * 2), not_learnt).vocabulary) == 9
    with pytest.raises(VocabularyError, match="confidence"):
        train(Corpus.of(["ACGT"]), spans, motifs=bank, confidence=np.zeros(4, np.int64))
    with pytest.raises(VocabularyError, match="sequence 2, letter 3: byte 0xc3"):
        Corpus.of(["AC", "ACé"])
    weights = np.arange(1, MAX_LEVELS + 2)
    with pytest.raises(VocabularyError, match="different weights"):
        SpanScores(weights, weights + 2, weights, 100)


@settings(max_examples=10)
@given(ROWS)
def test_upper_case_is_the_same_corpus(rows):
    lower = Corpus.of([row.lower() for row in rows]).upper()
    assert lower.digest == Corpus.of(rows).digest
