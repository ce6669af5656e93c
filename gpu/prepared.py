"""A vocabulary as everything that the kernels look up: the tables of all stages, by Job field.

NumPy only; knows no device and no batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.automata import automaton
from gpu.decode import decode_table
from gpu.special import SpecialTables, special_tables
from gpu.tables import (
    PAIRS_A_BUCKET,
    SHORT_A_BUCKET,
    BpeTables,
    NotCovered,
    bpe_tables,
    shift_of,
)
from vocabularies.vocabulary import Vocabulary

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What a vocabulary has on the device, by the Job field it is for.

    Attributes:
        arrays, numbers: by that field.
        num_rounds: rounds of special tokens.
    """

    arrays: Mapping[str, NDArray[np.generic]]
    numbers: Mapping[str, int]
    num_rounds: int


MAX_TEMPLATE = 16  # The workspaces have room for so many a row.


def prepare(vocabulary: Vocabulary, seed: int) -> Prepared:
    """The tables of a vocabulary.

    Raises:
        NotCovered: the kernels cannot compute the vocabulary.
    """
    if vocabulary.normalizers:
        raise NotCovered(f"the normalizer {vocabulary.normalizers[0].kind} rewrites the text")
    try:
        rule = automaton(vocabulary.pretokenizer)
    except ValueError as error:
        raise NotCovered(str(error)) from error
    if len(vocabulary.prefix) + len(vocabulary.suffix) > MAX_TEMPLATE:
        raise NotCovered(f"more than {MAX_TEMPLATE} begin and end tokens")
    special = special_tables(vocabulary, seed)
    tables = bpe_tables(vocabulary, seed)
    arrays: dict[str, NDArray[np.generic]] = {
        "entries": rule.entries,
        "class_pages": rule.pages,
        "class_table": rule.page_rows,
        "token_table": decode_table(vocabulary),
        "prefix": np.array(vocabulary.prefix, np.int32),
        "suffix": np.array(vocabulary.suffix, np.int32),
    }
    for source in (tables, special):
        for name in source.__slots__:
            value = getattr(source, name)
            if isinstance(value, np.ndarray):
                arrays[name] = np.ascontiguousarray(value)
    numbers = _numbers(tables, special) | {
        "num_states": rule.num_certain,
        "num_classes": rule.num_classes,
        "num_prefix": len(vocabulary.prefix),
        "num_suffix": len(vocabulary.suffix),
    }
    return Prepared(arrays, numbers, special.num_rounds)


def _numbers(tables: BpeTables, special: SpecialTables) -> dict[str, int]:
    return {
        "short_shift": shift_of(tables.short_tokens, SHORT_A_BUCKET),
        "long_shift": shift_of(tables.long_tokens, 1),
        "pair_shift": shift_of(tables.pairs, PAIRS_A_BUCKET),
        "token_shift": shift_of(tables.token_places, 1),
        "num_ids": len(tables.token_begins) - 1,
        "max_token": tables.max_token,
        "has_whole_only": int(tables.has_whole_only),
        "ignore_merges": int(tables.ignore_merges),
        "special_mask": special.special_mask,
        "seed": tables.seed,
    }
