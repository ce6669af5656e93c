"""Tests of the self-test by the reference's recorded answers."""

from dataclasses import replace

import pytest

from service.engines.cpu.recorded_answers import RECORDED, recorded_answers
from service.engines.encoder import ReferenceEncoder
from service.engines.selftest import compare, digest_answers, make_test_texts
from vocabularies.builtin import BUILTINS, load


class NeverAsked:
    """A witness whose answers are recorded."""

    name = "reference"

    def encode(self, batch, options):
        raise AssertionError("the witness was asked")


class OneWrongId(ReferenceEncoder):
    """An encoder whose third id of a batch is wrong."""

    def encode(self, batch, options):
        content = super().encode(batch, options)
        content.ids[2] += 1
        return content


def test_all_builtin_vocabularies_have_recorded_answers():
    assert len(RECORDED) == len(BUILTINS)


@pytest.mark.parametrize("name", BUILTINS)
def test_recorded_answers_are_the_references(name):
    vocabulary = load(name)
    reference = ReferenceEncoder(vocabulary)
    digest = digest_answers(reference, make_test_texts(vocabulary))
    assert recorded_answers(vocabulary) == digest  # If not, RECORDED needs the digest on the right.


def test_another_vocabulary_has_no_recorded_answers():
    vocabulary = load("hyenadna")
    changed = replace(vocabulary, prefix=(*vocabulary.prefix, 0))
    assert recorded_answers(changed) == ""


def test_equal_answers_do_not_need_the_witness():
    vocabulary = load("hyenadna")
    texts, recorded = make_test_texts(vocabulary), recorded_answers(vocabulary)
    result = compare(ReferenceEncoder(vocabulary), NeverAsked(), texts, recorded)
    assert (result.num_different, result.num_texts) == (0, len(texts))


def test_a_difference_from_recorded_answers_is_named_by_the_witness():
    vocabulary = load("hyenadna")
    texts, reference = make_test_texts(vocabulary), ReferenceEncoder(vocabulary)
    result = compare(OneWrongId(vocabulary), reference, texts, recorded_answers(vocabulary))
    assert result.num_different == 1
    assert "but reference says" in result.first_difference


def test_an_encoder_that_fails_differs_from_recorded_answers():
    vocabulary = load("hyenadna")
    texts, reference = make_test_texts(vocabulary), ReferenceEncoder(vocabulary)
    result = compare(NeverAsked(), reference, texts, recorded_answers(vocabulary))
    assert result.num_different == len(texts)
