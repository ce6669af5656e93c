"""Motifs on the GPU engine, against the reference: emulated and on a device."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import pytest
from hypothesis import assume, event, given, settings

from gpu.errors import NotCovered
from gpu.large.chunking import may_cut_rows
from gpu.vocabulary.device_tables import prepare
from tests.gpu.kmers.test_letter_tables import check
from tests.support.each_device import new_engine
from tests.support.inputs.motif_strategies import motif_cases, motif_vocabulary
from tests.support.inputs.sequence_strategies import OPTIONS
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.model.types import SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.motifs.bank import MotifBank
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

TEXT_OPTIONS = OPTIONS.map(lambda o: replace(o, reverse_complement=False, circular=None))
PLAIN = EncodeOptions(special="plain", spans=True)


engine_of = functools.cache(new_engine)


def check_any(vocabulary: Vocabulary, texts: list[str], options: EncodeOptions) -> None:
    engine = engine_of("emulated")
    try:
        engine.load(vocabulary)
        check(engine, vocabulary, texts, options)
    except NotCovered as reason:
        event(str(reason))
        assume(False)
    finally:
        engine.unload(vocabulary.digest)


@settings(max_examples=30)
@given(motif_cases(byte_level=True), TEXT_OPTIONS)
def test_any_motifs_of_bytes_have_the_ids_of_the_reference(case, options):
    check_any(*case, options)


@settings(max_examples=80)
@given(motif_cases(byte_level=False, normalizers=("runs", "lowercase", "rna")), OPTIONS)
def test_any_motifs_of_letters_have_the_ids_of_the_reference(case, options):
    check_any(*case, options)


BANK = ["ACGT", "CGTA", "ACG", "GT", "TTTTTTT", "GATTACA" * 30]
MERGES = [("A", "C"), ("G", "T"), ("AC", "GT"), ("T", "T"), ("TT", "A")]


def random_text(seed: int, length: int) -> str:
    """Letters, runs, motifs and their parts."""
    chance = random.Random(seed)
    pieces = [*"ACGTN", *BANK, "GATTACA" * 29, "T" * 40, "ACGTA" * 30]
    return "".join(chance.choices(pieces, k=length // 8))[:length]


@pytest.mark.parametrize("byte_level", [False, True], ids=["letters", "bytes"])
@pytest.mark.parametrize("specials", [("<mask>",), ("CG<",), ()], ids=["apart", "overlap", "none"])
@pytest.mark.slow
def test_motifs_across_the_borders_of_tiles(engine, byte_level, specials):
    vocabulary = motif_vocabulary("ACGTN", MERGES, BANK, byte_level=byte_level, specials=specials)
    texts = [random_text(seed, length) for seed, length in enumerate((9000, 4095, 0, 1, 5000))]
    texts += ["GATTACA" * 1000, "C" + "ACG" * 2000, "<mask>ACG<T" * 400]
    for options in (EncodeOptions(spans=True), PLAIN):
        check(engine, vocabulary, texts, options)
    if not byte_level:
        check(engine, vocabulary, texts, EncodeOptions(reverse_complement=True, max_length=99))


def test_a_learnt_vocabulary_has_the_ids_of_the_reference(engine):
    """Training makes it: it cuts out motifs, merges what lies between, and reads U as T."""
    corpus = [random_text(seed, 400).replace("N", "A") for seed in range(40)]
    options = TrainingOptions(vocabulary_size=40, merge_rule="span_preserving", max_token_length=16)
    learnt = train(Corpus.of(corpus), options, motifs=MotifBank.of(BANK[:4])).vocabulary
    assert learnt.motifs == tuple(sorted(BANK[:4]))
    assert len(learnt.model.merges) > 10
    assert [(step.pattern, step.content) for step in learnt.normalizers] == [("U", "T")]
    texts = [*corpus[:5], "ACGNTU[UNK]ACG", "[UNK]", "".join(corpus[:12])]
    for options in (EncodeOptions(spans=True), PLAIN, EncodeOptions(reverse_complement=True)):
        check(engine, learnt, texts, options)


@pytest.mark.parametrize(
    ("specials", "num_rounds"),
    [((), 1), (("<mask>",), 1), (("CG<",), 2), (("<ACG>",), 2)],
)
def test_motifs_that_lie_apart_from_special_tokens_are_found_with_them(specials, num_rounds):
    vocabulary = motif_vocabulary("ACGTN", MERGES, BANK, specials=specials)
    assert prepare(vocabulary, 7).num_rounds == num_rounds


def test_tokens_that_only_a_whole_stretch_is(engine):
    """Where merges are ignored, the text of a special token is one id if it stands alone."""
    vocabulary = motif_vocabulary("ACGTmask<>", MERGES, ["ACG"], specials=("<mask>", "<mas"))
    texts = ["<mask>", "<unk>", "ACG<mask>ACG<unk>", "<mask>A", "A<mas", "<mas", "ACGACG", ""]
    for mode in ("match", "plain", "refuse"):
        check(engine, vocabulary, texts, EncodeOptions(special=mode, spans=True))
    uncut = replace(vocabulary, pretokenizer="none", motifs=())
    for mode in ("match", "plain", "refuse"):
        check(engine, uncut, [*texts, "ACG"], EncodeOptions(special=mode, spans=True))


def test_letters_become_others_outside_of_special_tokens(engine):
    """Special tokens are found in the text as it was sent, motifs in what is made of the rest."""
    vocabulary = motif_vocabulary(
        "acgtmask<>",
        [("a", "c"), ("g", "t")],
        ["acg", "ttt"],
        specials=("<MASK>", "<UUU>"),
        normalizers=(Normalizer("lowercase"), Normalizer("replace", "u", "t")),
    )
    texts = ["ACGUUU<MASK>acG<mask>", "<UUU>uuu" * 900, "É ACG é", "<MASK>" * 50 + "UUUU"]
    texts.append("A" * 4090 + "<MASK>" + "UGT" * 30)
    for options in (EncodeOptions(spans=True), PLAIN, EncodeOptions(reverse_complement=True)):
        check(engine, vocabulary, texts, options)
    with pytest.raises(NotCovered):  # Two characters and an ASCII one in lower case.
        engine.encode(vocabulary, Batch(["ACG\u0130", "AC\u212a"]))


def letters(**more: object) -> Vocabulary:
    return replace(motif_vocabulary("ACGTN-", MERGES, ["ACG", "CN"]), **more)


@pytest.mark.parametrize(
    ("vocabulary", "reason"),
    [
        (letters(normalizers=(Normalizer("strip"),)), "white space is stripped"),
        (letters(normalizers=(Normalizer("replace", "U", "TT"),)), "the normalizer replace"),
        (
            letters(
                normalizers=(
                    Normalizer("replace_regex", "R{5,}", "-"),
                    Normalizer("replace", "U", "T"),
                )
            ),
            "the normalizer replace 'U'",
        ),
        (letters(normalizers=(Normalizer("replace_regex", "N{5,}", "-"),)), "motifs have such"),
        (
            letters(
                special_tokens=(
                    SpecialToken("<unk>", 0),
                    SpecialToken("<mask>", 1, normalized=True),
                )
            ),
            "motifs behind special tokens of two rounds",
        ),
        (
            replace(letters(), pretokenizer="whitespace_split", motifs=()),
            "a pretoken that is a token which merges do not reach",
        ),
    ],
    ids=["strip", "replace", "order", "runs", "rounds", "cut"],
)
def test_what_is_not_covered_says_why(vocabulary, reason):
    with pytest.raises(NotCovered, match=reason):
        prepare(vocabulary, 7)


@pytest.mark.parametrize("byte_level", [False, True], ids=["letters", "bytes"])
def test_a_row_with_motifs_is_not_cut_into_chunks(byte_level):
    vocabulary = motif_vocabulary("ACGT ", MERGES, ["A C"], byte_level=byte_level)
    assert not may_cut_rows(vocabulary)
