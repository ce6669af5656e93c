"""Makes the tables of a vocabulary for all kernels, by Job field.

NumPy only, without devices and batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.dna.tables import prepare_dna
from gpu.errors import NotCovered
from gpu.kernels.families import COMPOSED, TEXT, Family
from gpu.kmers.letter_tables import letter_tables_of
from gpu.text.bpe_tables import PAIRS_A_BUCKET, SHORT_A_BUCKET, BpeTables, bpe_tables, shift_of
from gpu.text.nfc_check import composed_leads, composed_tables, only_composes
from gpu.text.pretokenizer_automaton import automaton
from gpu.vocabulary.decode_table import decode_table
from gpu.vocabulary.special_tokens import SpecialTables, special_tables
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTables:
    """The tables of a vocabulary.

    Attributes:
        family: the kernels that encode with the vocabulary.
        arrays: the arrays that are copied to the device, by Job field.
        numbers: the values of other Job fields.
        num_rounds: the number of rounds in which special tokens are matched.
    """

    family: Family
    arrays: Mapping[str, NDArray[np.generic]]
    numbers: Mapping[str, int]
    num_rounds: int


MAX_TEMPLATE = 16  # Begin and end tokens of a row for which workspaces have room.
TOKEN_PADDING = 16  # Readable bytes after the tokens, see cuda/common/job.cuh.


def prepare(vocabulary: Vocabulary, seed: int) -> DeviceTables:
    """Make the tables of a vocabulary; `seed` is the key of the hash functions.

    Raises:
        NotCovered: the kernels do not support the vocabulary.
    """
    if len(vocabulary.prefix) + len(vocabulary.suffix) > MAX_TEMPLATE:
        raise NotCovered(f"more than {MAX_TEMPLATE} begin and end tokens")
    own, whole_tokens = _family_tables(vocabulary, seed)
    special = special_tables(vocabulary, seed, whole_tokens, is_rewritten=bool(own.family.between))
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
    # Where k-mers stand in words, a special token is a word and does not split the text.
    num_rounds = 0 if numbers.get("has_words") else special.num_rounds
    return DeviceTables(own.family, arrays, numbers, num_rounds)


def _family_tables(vocabulary: Vocabulary, seed: int) -> tuple[DeviceTables, dict[bytes, int]]:
    """Make the tables of a vocabulary's family; also return the tokens that only match whole."""
    letters = letter_tables_of(vocabulary)
    if letters is not None:
        arrays = letters.arrays | _token_bytes(vocabulary)
        return DeviceTables(letters.family, arrays, letters.numbers, 0), {}
    if isinstance(vocabulary.model, Bpe) and not vocabulary.model.byte_level:
        dna = prepare_dna(vocabulary)
        arrays = dna.arrays | _token_bytes(vocabulary)
        return DeviceTables(dna.family, arrays, dna.numbers, 0), dna.whole_tokens
    return prepare_text(vocabulary, seed), {}


def _token_bytes(vocabulary: Vocabulary) -> dict[str, NDArray[np.generic]]:
    return {"token_bytes": _padded(token_table(vocabulary).data)}


def prepare_text(vocabulary: Vocabulary, seed: int) -> DeviceTables:
    """Make the tables of a vocabulary of the family `text`.

    Raises:
        NotCovered: its kernels do not support the vocabulary.
    """
    composes = only_composes(vocabulary)
    if vocabulary.normalizers and not composes:
        raise NotCovered(f"the normalizer {vocabulary.normalizers[0].kind} rewrites the text")
    try:
        # Motifs are matched with the special tokens; the text between them is one pretoken.
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
    return DeviceTables(COMPOSED if composes else TEXT, arrays, numbers, 0)


def _padded(token_bytes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Append the bytes that kernels read after the last token."""
    return np.concatenate([token_bytes, np.zeros(TOKEN_PADDING, np.uint8)])


def _arrays_of(tables: BpeTables | SpecialTables) -> dict[str, NDArray[np.generic]]:
    """Return the attributes that are arrays, by name."""
    values = {name: getattr(tables, name) for name in tables.__slots__}
    return {
        name: np.ascontiguousarray(value)
        for name, value in values.items()
        if isinstance(value, np.ndarray)
    }
