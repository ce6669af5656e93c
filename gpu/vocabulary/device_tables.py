"""A vocabulary as everything that the kernels look up: the tables of all stages, by Job field.

NumPy only; knows no device and no batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.dna.tables import prepare_dna
from gpu.errors import NotCovered
from gpu.kernels.families import COMPOSED, TEXT, Family
from gpu.kmers.letter_tables import symbol_tables
from gpu.text.bpe_tables import PAIRS_A_BUCKET, SHORT_A_BUCKET, BpeTables, bpe_tables, shift_of
from gpu.text.nfc_check import composed_leads, composed_tables, only_composes
from gpu.text.pretokenizer_automaton import automaton
from gpu.vocabulary.decode_table import decode_table
from gpu.vocabulary.special_tokens import SpecialTables, special_tables
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What a vocabulary has on the device, by the Job field it is for.

    Attributes:
        family: the kernels that compute it.
        arrays, numbers: by that field.
        num_rounds: rounds of special tokens.
    """

    family: Family
    arrays: Mapping[str, NDArray[np.generic]]
    numbers: Mapping[str, int]
    num_rounds: int


MAX_TEMPLATE = 16  # The workspaces have room for so many a row.
TOKEN_PADDING = 16  # Readable bytes behind the tokens, see cuda/common/job.cuh.


def prepare(vocabulary: Vocabulary, seed: int) -> Prepared:
    """The tables of a vocabulary: those of its family, and those that all families have.

    Raises:
        NotCovered: the kernels cannot compute the vocabulary.
    """
    if len(vocabulary.prefix) + len(vocabulary.suffix) > MAX_TEMPLATE:
        raise NotCovered(f"more than {MAX_TEMPLATE} begin and end tokens")
    own, whole = _own_tables(vocabulary, seed)
    special = special_tables(vocabulary, seed, whole, is_rewritten=bool(own.family.between))
    arrays = {
        **own.arrays,
        **_arrays_of(special),
        "token_table": decode_table(vocabulary),
        "prefix": np.array(vocabulary.prefix, np.int32),
        "suffix": np.array(vocabulary.suffix, np.int32),
    }
    numbers = {
        **own.numbers,
        "special_mask": special.special_mask,
        "num_ids": len(vocabulary),
        "num_prefix": len(vocabulary.prefix),
        "num_suffix": len(vocabulary.suffix),
        "seed": seed,
    }
    # Special tokens that are words among k-mers are no borders of the text.
    num_rounds = 0 if numbers.get("has_words") else special.num_rounds
    return Prepared(own.family, arrays, numbers, num_rounds)


def _own_tables(vocabulary: Vocabulary, seed: int) -> tuple[Prepared, dict[bytes, int]]:
    """What a vocabulary's own kernels read; and the tokens that only a whole stretch is."""
    whole: dict[bytes, int] = {}
    symbols = symbol_tables(vocabulary)
    if symbols is None and isinstance(vocabulary.model, Bpe) and not vocabulary.model.byte_level:
        family, arrays, numbers, whole = prepare_dna(vocabulary)
        symbols = family, arrays, numbers
    if symbols is None:
        return prepare_text(vocabulary, seed), whole
    family, arrays, numbers = symbols
    tokens = token_table(vocabulary)
    return Prepared(family, arrays | {"token_bytes": _padded(tokens.data)}, numbers, 0), whole


def prepare_text(vocabulary: Vocabulary, seed: int) -> Prepared:
    """The tables of the family `text`.

    Raises:
        NotCovered: its kernels cannot compute the vocabulary.
    """
    composes = only_composes(vocabulary)
    if vocabulary.normalizers and not composes:
        raise NotCovered(f"the normalizer {vocabulary.normalizers[0].kind} rewrites the text")
    try:
        # Motifs are cut out with the special tokens; what they leave is one pretoken.
        rule = automaton("none" if vocabulary.motifs else vocabulary.pretokenizer)
    except ValueError as error:
        raise NotCovered(str(error)) from error
    tables = bpe_tables(vocabulary, seed)
    arrays = {
        **_arrays_of(tables),
        "token_bytes": _padded(tables.token_bytes),
        "entries": rule.entries,
        "class_pages": rule.pages,
        "class_table": rule.page_rows,
    }
    if composes:
        arrays["composed_pages"], arrays["composed_rows"] = composed_tables()
    numbers = {
        "short_shift": shift_of(tables.short_tokens, SHORT_A_BUCKET),
        "long_shift": shift_of(tables.long_tokens, 1),
        "pair_shift": shift_of(tables.pairs, PAIRS_A_BUCKET),
        "token_shift": shift_of(tables.token_places, 1),
        "max_token": tables.max_token,
        "has_whole_only": int(tables.has_whole_only),
        "num_states": rule.num_certain,
        "num_classes": rule.num_classes,
        "composed_leads": composed_leads() if composes else 0,
    }
    return Prepared(COMPOSED if composes else TEXT, arrays, numbers, 0)


def _padded(token_bytes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """With the bytes behind them that kernels read beside the last token's."""
    return np.concatenate([token_bytes, np.zeros(TOKEN_PADDING, np.uint8)])


def _arrays_of(tables: BpeTables | SpecialTables) -> dict[str, NDArray[np.generic]]:
    """The arrays among the attributes, by name."""
    values = {name: getattr(tables, name) for name in tables.__slots__}
    return {
        name: np.ascontiguousarray(value)
        for name, value in values.items()
        if isinstance(value, np.ndarray)
    }
