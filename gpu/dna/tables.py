"""Makes the tables of a character-level BPE vocabulary for cuda/dna/tokens.cuh.

The tables are made once, when a vocabulary is loaded, and copied to the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.dna.alphabet import Letters, letters_of
from gpu.dna.compatible_pairs import Pairs, SpelledTokens, compatible_pairs, find_reached
from gpu.dna.longest_prefix import Longest, longest_tokens, spelled_tokens
from gpu.dna.part_tables import PartTables, part_tables
from gpu.dna.suffix_tables import Endings, endings_of
from gpu.dna.whole_tokens import whole_tokens
from gpu.errors import NotCovered
from gpu.kernels.families import Family, dna_family
from gpu.kernels.job import constant
from gpu.memory.workspace_layout import MAX_TEMPLATE, SMALL_CHUNK_TEXT
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.bpe import make_bpe_rules
from vocabularies.sequences.strand import COMPLEMENT

UInt16s = NDArray[np.uint16]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

NO_TOKEN, LONG_TOKENS = constant("NO_TOKEN"), constant("LONG_TOKENS")
MAX_LETTERS, MAX_IDS = constant("MAX_LETTERS"), LONG_TOKENS
SMALL_VOCABULARY, SMALL_K, LARGE_K = 6000, 8, 10
PREFIX_SHIFT, LEFT_SHIFT = constant("PREFIX_SHIFT"), constant("LEFT_SHIFT")
RIGHT_SHIFT, MIXED_SHIFT = constant("RIGHT_SHIFT"), constant("MIXED_SHIFT")
LETTER_MIXED = constant("LETTER_MIXED")
LEFT_CLASSES = constant("LEFT_CLASSES")
# Up to this size of text, chunks are small if the tables are not copied to shared memory.
UNCOPIED_TEXT = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class DnaTokens:
    """The tokens of a BPE over letters, for the kernels and the CPU engine.

    Attributes:
        letters: the classes and ids of single letters.
        ids: the ids of the tokens that merges reach and whose letters merge.
        pairs: the relation of compatible tokens, in the order of `ids`.
        whole: tokens that no merges produce; they match only the whole text between two borders.
    """

    letters: Letters
    ids: dict[bytes, int]
    pairs: Pairs
    whole: dict[bytes, int]

    @property
    def codes(self) -> dict[bytes, list[int]]:
        """The tokens of bases alone, with the numbers of their letters."""
        places = {letter: place for place, letter in enumerate(self.letters.bases)}
        return {
            token: [places[letter] for letter in token]
            for token in self.ids
            if _pure(token, self.letters)
        }


@dataclass(frozen=True, slots=True, eq=False)
class DnaTables:
    """The tables of a vocabulary; see cuda/dna/tokens.cuh.

    A token is mixed if it has a letter other than the four bases.

    Attributes:
        letters: the classes and ids of single letters.
        k: the number of letters that index `longest` and `spelled`; the first letter has the lowest
            two bits.
        longest: the longest token at each position, by the next letters.
        spelled: uint16[...], the token that 1 .. k letters spell, from (4**length - 4) / 3 on.
        tokens: uint64[ids], for each id its length, its longest proper prefix that is a token, and
            its classes.
        pairs: uint32[...], see compatible_pairs.Pairs.
        pair_words: words of a row of `pairs`.
        mixed_bytes: uint8[mixed tokens, 64], sorted.
        mixed_ids: uint32[mixed tokens], length << 16 | id.
        reach: the largest number of bases before the first other letter of a mixed token.
        whole: tokens that no merges produce; they match only the whole text between two borders.
        endings: the tables of last tokens; None if the vocabulary has none.
        parts: the tables of the fused kernel; None if the vocabulary has none.
    """

    letters: Letters
    k: int
    longest: Longest
    spelled: UInt16s
    tokens: UInt64s
    pairs: UInt32s
    pair_words: int
    mixed_bytes: NDArray[np.uint8]
    mixed_ids: UInt32s
    reach: int
    whole: dict[bytes, int]
    endings: Endings | None
    parts: PartTables | None

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return {Job field: array} for the device."""
        own: dict[str, NDArray[np.generic]] = {
            "complement": np.ascontiguousarray(COMPLEMENT),
            "dna_spelled": self.spelled,
            "dna_tokens": self.tokens,
            "dna_pairs": self.pairs,
            "mixed_bytes": self.mixed_bytes,
            "mixed_ids": self.mixed_ids,
        }
        others = (self.letters, self.longest, self.endings, self.parts)
        return own | {name: a for each in others if each for name, a in each.arrays().items()}

    def numbers(self) -> dict[str, int]:
        """Return {Job field: value} for the other fields of the Job."""
        own = {
            "dna_k": self.k,
            "dna_pair_words": self.pair_words,
            "num_mixed": len(self.mixed_ids),
            "mixed_reach": self.reach,
            "dna_small_bytes": self._small_bytes(),
            **dict.fromkeys(("piece_ids", "wraps", "can_wrap", "ending_k"), 0),
        }
        others = (self.letters, self.endings, self.parts)
        return own | {name: n for each in others if each for name, n in each.numbers().items()}

    def _small_bytes(self) -> int:
        """Return the largest size of text, in bytes, for which chunks are small."""
        is_copied = self.endings is not None and self.endings.is_copied
        return SMALL_CHUNK_TEXT if is_copied else min(SMALL_CHUNK_TEXT, UNCOPIED_TEXT)


class PreparedDna(NamedTuple):
    """The family and the tables of a vocabulary of DNA letters.

    Attributes:
        family: the kernels that encode it.
        arrays: the arrays for the device, by Job field.
        numbers: the values of other Job fields.
        whole_tokens: ids of the tokens that match only the whole text between two borders.
    """

    family: Family
    arrays: dict[str, NDArray[np.generic]]
    numbers: dict[str, int]
    whole_tokens: dict[bytes, int]


def prepare_dna(vocabulary: Vocabulary) -> PreparedDna:
    """Make the tables of a vocabulary and choose its kernels.

    Raises:
        NotCovered: the kernels do not support the vocabulary.
    """
    if len(vocabulary.prefix) + len(vocabulary.suffix) > MAX_TEMPLATE:
        raise NotCovered(f"more than {MAX_TEMPLATE} begin and end tokens")
    tables = dna_tables(vocabulary)
    family = dna_family(
        has_whole=bool(tables.whole),
        maps=tables.letters.steps.maps,
        walk=_walk(tables),
        parts=_parts_kernel(tables),
    )
    return PreparedDna(family, tables.arrays(), tables.numbers(), tables.whole)


def _walk(tables: DnaTables) -> tuple[str, ...]:
    """Return the kernels that find paths through windows."""
    if tables.endings is None:
        return ("walk_windows",)
    forward = "forward_windows_copied" if tables.endings.is_copied else "forward_windows"
    return (forward, "walk_windows")


def _parts_kernel(tables: DnaTables) -> str:
    """Return the fused kernel of small batches, or ""."""
    if tables.endings is None or tables.parts is None:
        return ""
    if len(tables.pairs) // tables.pair_words > LEFT_CLASSES:
        return ""
    return "encode_dna_parts_copied" if tables.endings.is_copied else "encode_dna_parts"


def dna_tokens(vocabulary: Vocabulary) -> DnaTokens:
    """Find the tokens of a vocabulary of letters.

    Raises:
        NotCovered: the vocabulary is not a BPE over letters, or has letters, tokens or steps that
            the algorithm does not support.
    """
    model = vocabulary.model
    if not isinstance(model, Bpe) or model.byte_level:
        raise NotCovered("the model is not BPE over letters")
    if len(vocabulary) > MAX_IDS:
        raise NotCovered(f"more than {MAX_IDS} ids")
    letter_ids, tokens = _reached(vocabulary)
    long = [token for token in tokens if len(token) > 1]
    letters, merging = letters_of(vocabulary, letter_ids, long), set(b"".join(long))
    kept = {token: each for token, each in tokens.items() if token[0] in merging}
    if any(len(token) > MAX_LETTERS for token in kept):
        raise NotCovered(f"a token of more than {MAX_LETTERS} letters")
    pairs = _pairs(vocabulary, kept, letter_ids)
    return DnaTokens(letters, kept, pairs, whole_tokens(vocabulary, tokens, letters.steps))


def dna_tables(vocabulary: Vocabulary, k: int | None = None) -> DnaTables:
    """Make the tables of a vocabulary; without `k`, a suitable one is chosen.

    Raises:
        NotCovered: the kernels do not support the vocabulary.
    """
    tokens = dna_tokens(vocabulary)
    letters, kept, pairs, codes = tokens.letters, tokens.ids, tokens.pairs, tokens.codes
    k = _indexed_letters(len(kept), (letters.classes == LETTER_MIXED).any()) if k is None else k
    mixed = sorted(token for token in kept if token not in codes)
    endings = endings_of(codes, kept, pairs)
    return DnaTables(
        letters=letters,
        k=k,
        longest=longest_tokens(codes, kept, k),
        spelled=spelled_tokens(codes, kept, k),
        tokens=_records(len(vocabulary), kept, pairs, letters),
        pairs=pairs.bits.reshape(-1),
        pair_words=pairs.bits.shape[1],
        mixed_bytes=_padded(mixed),
        mixed_ids=np.array([len(token) << 16 | kept[token] for token in mixed], np.uint32),
        reach=max((_first_mixed(token, letters) for token in mixed), default=0),
        whole=tokens.whole,
        endings=endings,
        parts=part_tables(vocabulary, letters, codes, kept, k, endings, pairs) if endings else None,
    )


def _indexed_letters(num_tokens: int, has_mixed: bool) -> int:
    """Return the number of letters that index the tables of `num_tokens` tokens.

    The number is greater by one if merges contain letters other than bases.
    """
    most = SMALL_K if num_tokens <= SMALL_VOCABULARY else LARGE_K
    return min(most, 2 + num_tokens.bit_length() // 2 + has_mixed)


def _padded(tokens: list[bytes]) -> NDArray[np.uint8]:
    """Return uint8[tokens * MAX_LETTERS]: each token, padded with zeros."""
    return np.frombuffer(b"".join(token.ljust(MAX_LETTERS, b"\0") for token in tokens), np.uint8)


def _reached(vocabulary: Vocabulary) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Return the ids of letters, and the ids of the tokens that merges reach.

    Merges reach a token if they produce it from its own letters.
    """
    rules = make_bpe_rules(vocabulary)
    letter_ids = {
        token: token_id for token, token_id in rules.token_ids.items() if len(token.decode()) == 1
    }
    token_ids = set(letter_ids.values())
    token_ids.update(merged for _, merged in rules.merges.values())
    tokens: dict[bytes, int] = {}
    for token_id in token_ids:
        token = vocabulary.tokens[token_id]
        assert token is not None
        tokens[token] = token_id
    reached = find_reached(_spell(tokens, letter_ids), rules)
    return letter_ids, {token: tokens[token] for token in itertools.compress(tokens, reached)}


def _spell(tokens: Iterable[bytes], letter_ids: dict[bytes, int]) -> SpelledTokens:
    letters = {letter.decode(): token_id for letter, token_id in letter_ids.items()}
    return SpelledTokens.of([token.decode() for token in tokens], letters)


def _pure(token: bytes, letters: Letters) -> bool:
    return all(letter in letters.bases for letter in token)


def _first_mixed(token: bytes, letters: Letters) -> int:
    """Return the place of the first letter that is not a base."""
    return next(place for place, letter in enumerate(token) if letter not in letters.bases)


def _pairs(vocabulary: Vocabulary, kept: dict[bytes, int], letter_ids: dict[bytes, int]) -> Pairs:
    """Return the relation of compatible tokens among `kept`."""
    if not kept:
        none = np.zeros(0, np.uint16)
        return Pairs(none, none, np.zeros((1, 1), np.uint32))
    return compatible_pairs(_spell(kept, letter_ids), make_bpe_rules(vocabulary))


def _records(num_ids: int, kept: dict[bytes, int], pairs: Pairs, letters: Letters) -> UInt64s:
    """Return the record of each id."""
    records = np.zeros(max(1, num_ids), np.uint64)
    for (token, token_id), left, right in zip(
        kept.items(), pairs.left.tolist(), pairs.right.tolist(), strict=True
    ):
        shorter = next(
            (kept[token[:n]] for n in range(len(token) - 1, 0, -1) if token[:n] in kept), NO_TOKEN
        )
        record = len(token) | shorter << PREFIX_SHIFT | left << LEFT_SHIFT | right << RIGHT_SHIFT
        records[token_id] = record | (not _pure(token, letters)) << MIXED_SHIFT
    return records
