"""T and U as one letter: which corpora and alphabets are changed, and how."""

from __future__ import annotations

import pytest

from vocabularies.reference.tokenizer import encode
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.nucleotides import join_t_and_u
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train


@pytest.mark.parametrize(
    ("rows", "alphabet", "expected", "replaced"),
    [
        (["ACGU", "ACC"], None, "ACGUACC", ["TU"]),
        (["ACGT", "ACC"], None, "ACGTACC", ["UT"]),
        (["ACGU", "ACCT"], None, "ACGTACCT", ["UT"]),
        (["ACGU", "acct"], None, "ACGUacct", ["TU", "ut"]),
        (["ACGUN-RY*"], None, "ACGUN-RY*", ["TU"]),
        (["ACG"], None, "ACG", []),
        (["MKTU"], None, "MKTT", ["UT"]),
        (["MEKTU"], None, "MEKTU", []),
        (["ACGT"], "ACGU", "ACGU", ["TU"]),
        (["ACGU"], "ACGT", "ACGT", ["UT"]),
        (["ACGUT"], "ACGTU", "ACGUT", []),
        (["ACGT"], "ACGTE", "ACGT", []),
    ],
)
def test_the_letters_of_a_corpus(rows, alphabet, expected, replaced):
    corpus, steps = join_t_and_u(Corpus.of(rows), alphabet)
    assert corpus.data.tobytes().decode() == expected
    assert [step.pattern + step.content for step in steps] == replaced
    assert {step.kind for step in steps} <= {"replace"}


def test_a_vocabulary_of_u_takes_t_and_the_other_way_round():
    rows = ["UGAGGUAGUAGGUUGUAUAGUU", "UGAGGUAGUAGG", "GUUGUAUAGUU"]
    as_t = [row.replace("U", "T") for row in rows]
    mixed = train(Corpus.of([rows[0], *as_t[1:]]), TrainingOptions(20)).vocabulary
    assert mixed == train(Corpus.of(as_t), TrainingOptions(20)).vocabulary
    for learnt_from in (rows, as_t):
        vocabulary = train(Corpus.of(learnt_from), TrainingOptions(20)).vocabulary
        apart = train(Corpus.of(learnt_from), TrainingOptions(20, t_and_u="apart")).vocabulary
        assert (vocabulary.tokens, vocabulary.model) == (apart.tokens, apart.model)
        assert apart.normalizers == ()
        for u, t in zip(rows, as_t, strict=True):
            ids = encode(vocabulary, u).ids
            assert ids == encode(vocabulary, t).ids
            assert encode(apart, u if learnt_from is rows else t).ids == ids
            assert 0 in encode(apart, t if learnt_from is rows else u).ids
