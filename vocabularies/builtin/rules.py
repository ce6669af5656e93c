"""Makes the built-in vocabularies that are defined by a rule: k-mers, characters, bytes.

This module makes only the lists of tokens. `formats.word_lists.published_rules` finds the rule of a
list by its first tokens. Tests compare the lists with published files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from vocabularies.formats.word_lists.published_rules import (
    DNABERT1,
    HYENADNA,
    MTDNA,
    NT_V1,
    NT_V2,
    NT_V3,
)
from vocabularies.formats.word_lists.vocab_files import all_kmers, make_word_vocabulary
from vocabularies.model.types import Characters
from vocabularies.model.vocabulary import Vocabulary

EVO_IDS = 512


def _words(*parts: tuple[str, ...] | list[str] | str) -> Vocabulary:
    return make_word_vocabulary(dict(enumerate(word for part in parts for word in part)))


def _dnabert1(k: int) -> Callable[[], Vocabulary]:
    return lambda: _words(DNABERT1, all_kmers("ATCG", k))


def _caduceus() -> Vocabulary:
    """Make HyenaDNA's vocabulary, changed so that sequences are converted to upper case."""
    vocabulary = _words(HYENADNA, "ACGTN")
    assert isinstance(vocabulary.model, Characters)
    return replace(vocabulary, model=replace(vocabulary.model, case="upper"))


def _evo_bytes() -> Vocabulary:
    """Make a vocabulary whose ids are the byte values; 0 and 1 are also "eos" and "pad"."""
    tokens = [bytes([byte]) for byte in range(256)]
    return Vocabulary(
        tokens=(*tokens, *[None] * (EVO_IDS - 256)),
        model=Characters(tuple((chr(byte), byte) for byte in range(256)), unit="byte"),
        roles={"eos": 0, "pad": 1},
    )


RULES: Mapping[str, Callable[[], Vocabulary]] = MappingProxyType(
    {
        "nt_v1": lambda: _words(NT_V1, all_kmers("ATCG", 6), "ATCGN"),
        "nt_v2": lambda: _words(NT_V2, all_kmers("ATCG", 6), "ATCGN"),
        "ntv3": lambda: _words(NT_V3, "ATCGN"),
        "dnabert1_3mer": _dnabert1(3),
        "dnabert1_4mer": _dnabert1(4),
        "dnabert1_5mer": _dnabert1(5),
        "dnabert1_6mer": _dnabert1(6),
        "hyenadna": lambda: _words(HYENADNA, "ACGTN"),
        "caduceus": _caduceus,
        "evo_bytes": _evo_bytes,
        "mtdna6": lambda: _words(MTDNA, all_kmers("ACGT", 6)),
    }
)
