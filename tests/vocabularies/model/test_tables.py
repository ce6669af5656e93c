"""The flat arrays of a vocabulary equal its Python objects."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from vocabularies.builtin import BUILTINS, load
from vocabularies.model.tables import (
    BASE,
    DROPPED,
    OTHER,
    SINGLE,
    SPACE,
    character_table,
    kmer_table,
    mark_special_bytes,
    token_table,
)
from vocabularies.model.types import Bpe, Characters, Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary


@pytest.mark.parametrize("name", BUILTINS)
def test_every_token_lies_where_its_offsets_say(name):
    vocabulary = load(name)
    table = token_table(vocabulary)
    data = table.data.tobytes()
    for token_id, token in enumerate(vocabulary.tokens):
        begin, end = table.offsets[token_id : token_id + 2]
        assert data[begin:end] == (token or b"")
        assert table.lengths[token_id] == (-1 if token is None else len(token))
    assert frozenset(np.flatnonzero(table.is_special).tolist()) == vocabulary.special_ids


@pytest.mark.parametrize("name", BUILTINS)
def test_no_array_can_be_written(name):
    vocabulary = load(name)
    tables = [token_table(vocabulary), character_table(vocabulary)]
    if isinstance(vocabulary.model, Kmers):
        tables.append(kmer_table(vocabulary))
    for table in filter(None, tables):
        for field in fields(table):
            value = getattr(table, field.name)
            assert not isinstance(value, np.ndarray) or not value.flags.writeable, field.name


def test_letters_of_nucleotide_transformer():
    table = kmer_table(load("nt_v2"))
    assert table.codes[[*b"ATCG"]].tolist() == [0, 1, 2, 3]
    assert table.num_kmers == 4**6
    assert set(table.codes[[*b"Nacgt \xff"]].tolist()) == {4**6}
    assert table.classes[[*b"ACGTN aR\n"]].tolist() == [
        *[BASE] * 4,
        SINGLE,
        SPACE,
        *[OTHER] * 2,
        SPACE,
    ]
    assert table.letter_ids[[*b"ATCGNa"]].tolist() == [4102, 4103, 4104, 4105, 4106, 0]
    assert table.needs_reference[[*b"<\x80\xff"]].all()
    assert not table.needs_reference[[*b"ACGTN acgt"]].any()


def test_upper_case_is_in_the_tables():
    table = kmer_table(load("mtdna6"))
    assert table.codes[[*b"acgtACGT"]].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    small = Vocabulary((b"<u>", b"a"), Kmers(1, 1, 0, "a", case="upper"))
    assert kmer_table(small).codes[[*b"aA"]].tolist() == [1, 1]


def test_characters_of_hyenadna_and_gpn():
    hyenadna = character_table(load("hyenadna"))
    assert hyenadna.ids[[*b"ACGTNa\x80"]].tolist() == [7, 8, 9, 10, 11, 6, 6]
    assert (hyenadna.drops, hyenadna.by_byte, hyenadna.ascii_only) == (False, False, False)
    gpn = character_table(load("gpn"))
    assert gpn.ids[[*b"acgtACGTn"]].tolist() == [3, 4, 5, 6, 3, 4, 5, 6, 2]
    assert gpn.ids[[*b" \n"]].tolist() == [DROPPED, DROPPED]
    assert (gpn.drops, gpn.ascii_only) == (True, True)
    evo = character_table(load("evo_bytes"))
    assert evo.ids[:256].tolist() == [*range(256)]
    assert evo.by_byte
    assert not evo.needs_reference.any()


def test_a_model_whose_characters_depend_on_each_other_has_no_character_table():
    tokens = (b"a", b"b", b"ab")
    assert character_table(load("dnabert2")) is None
    assert character_table(Vocabulary(tokens[:2], Bpe((), byte_level=False))) is not None
    assert character_table(Vocabulary(tokens, Bpe(((0, 1),), byte_level=False))) is None
    assert character_table(Vocabulary(tokens, Bpe((), False, ignore_merges=True))) is None
    fused = Bpe((), byte_level=False, unknown_id=0, fuse_unknown=True)
    assert character_table(Vocabulary(tokens, fused)) is None


def test_letters_beyond_ascii_have_their_ids():
    table = character_table(Vocabulary((b"<u>", "中".encode()), Characters((("中", 1),), 0)))
    assert table.ids[ord("中")] == 1
    assert table.ids[-1] == 0
    assert len(table.ids) == ord("中") + 2


def test_marks_are_signs_where_a_special_token_has_one():
    tokens = (b"A", b"[MASK]", b"mask", b"<x>")
    special = (
        SpecialToken("[MASK]", 1),
        SpecialToken("mask", 2),
        SpecialToken("<x>", 3, matched=False),
    )
    vocabulary = Vocabulary(tokens, Characters((("A", 0),), 1), special)
    assert np.flatnonzero(mark_special_bytes(vocabulary)).tolist() == sorted(b"[Mm")
