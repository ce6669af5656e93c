"""A character-level BPE vocabulary as the tables of cuda/dna/tokens.cuh.

NumPy only: made once when a vocabulary is loaded and then copied to the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.dna.alphabet import Letters, letters_of
from gpu.dna.compatible_pairs import Pairs, Run, compatible_pairs, run_of
from gpu.dna.longest_prefix import Longest, longest_tokens, spelled_tokens
from gpu.dna.one_launch_tables import Bases, bases_of
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
MAX_PAIR_BYTES, LEFT_CLASSES = 64 << 20, constant("LEFT_CLASSES")
UNCOPIED_TEXT = 1 << 24  # The same of vocabularies whose tables are not copied.


@dataclass(frozen=True, slots=True, eq=False)
class DnaTables:
    """What the kernels read; see cuda/dna/tokens.cuh. A token is known by its id.

    Attributes:
        letters: what bytes mean.
        k: letters that the tables `longest` and `spelled` are indexed by; the first one's two bits
            are the lowest.
        longest: of bases, by first letters.
        spelled: uint16[...], the token that 1 .. k letters spell, from (4**length - 4) / 3 on.
        tokens: uint64[ids], length, longest shorter token that it begins with, classes.
        pairs: uint32[...], see dna_pairs.Pairs; `pair_words` words a row.
        mixed_bytes: uint8[mixed tokens, 64], those with a letter beyond the four bases, in order.
        mixed_ids: uint32[mixed tokens], length << 16 | id.
        reach: bases at most before the first such letter in a token.
        whole: tokens that merges do not reach, which a stretch between two borders may be.
        endings: the tables of the tokens that end at a place; None where these do not serve.
        bases: those of batches of bases that are one launch; None where there are none such.
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
    bases: Bases | None

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """By Job field."""
        own: dict[str, NDArray[np.generic]] = {
            "complement": np.ascontiguousarray(COMPLEMENT),
            "dna_spelled": self.spelled,
            "dna_tokens": self.tokens,
            "dna_pairs": self.pairs,
            "mixed_bytes": self.mixed_bytes,
            "mixed_ids": self.mixed_ids,
        }
        others = (self.letters, self.longest, self.endings, self.bases)
        return own | {name: a for each in others if each for name, a in each.arrays().items()}

    def numbers(self) -> dict[str, int]:
        """By Job field."""
        own = {
            "dna_k": self.k,
            "dna_pair_words": self.pair_words,
            "num_mixed": len(self.mixed_ids),
            "mixed_reach": self.reach,
            "dna_small_bytes": self._small_bytes(),
            **dict.fromkeys(("piece_ids", "wraps", "can_wrap", "ending_k"), 0),
        }
        others = (self.letters, self.endings, self.bases)
        return own | {name: n for each in others if each for name, n in each.numbers().items()}

    def _small_bytes(self) -> int:
        """Text up to which chunks are small; SMALL_CHUNK_TEXT has the most."""
        is_copied = self.endings is not None and self.endings.is_copied
        return SMALL_CHUNK_TEXT if is_copied else min(SMALL_CHUNK_TEXT, UNCOPIED_TEXT)


def prepare_dna(
    vocabulary: Vocabulary,
) -> tuple[Family, dict[str, NDArray[np.generic]], dict[str, int], dict[bytes, int]]:
    """The family of a vocabulary of letters with its tables, by Job field, and its whole tokens.

    Raises:
        NotCovered: the kernels cannot compute it.
    """
    if len(vocabulary.prefix) + len(vocabulary.suffix) > MAX_TEMPLATE:
        raise NotCovered(f"more than {MAX_TEMPLATE} begin and end tokens")
    tables = dna_tables(vocabulary)
    family = dna_family(
        has_whole=bool(tables.whole),
        maps=tables.letters.steps.maps,
        walk=_walk(tables),
        bases=_bases(tables),
    )
    return family, tables.arrays(), tables.numbers(), tables.whole


def _walk(tables: DnaTables) -> tuple[str, ...]:
    """The kernels that find paths through windows."""
    if tables.endings is None:
        return ("walk_windows",)
    forward = "forward_windows_copied" if tables.endings.is_copied else "forward_windows"
    return (forward, "walk_windows")


def _bases(tables: DnaTables) -> str:
    """The kernel of batches of bases that end soon, "" where there is none."""
    if tables.endings is None or tables.bases is None:
        return ""
    if len(tables.pairs) // tables.pair_words > LEFT_CLASSES:
        return ""
    return "encode_bases_copied" if tables.endings.is_copied else "encode_bases"


def dna_tables(vocabulary: Vocabulary, k: int | None = None) -> DnaTables:
    """The tables of a vocabulary; `k` is chosen where it is not given.

    Raises:
        NotCovered: the kernels cannot compute it.
    """
    model = vocabulary.model
    if not isinstance(model, Bpe) or model.byte_level:
        raise NotCovered("the model is no BPE over letters")
    if len(vocabulary) > MAX_IDS:
        raise NotCovered(f"more than {MAX_IDS} ids")
    letter_ids, tokens, runs = _reached(vocabulary)
    long = [token for token in tokens if len(token) > 1]
    letters, merging = letters_of(vocabulary, letter_ids, long), set(b"".join(long))
    kept = {token: each for token, each in tokens.items() if token[0] in merging}
    if any(len(token) > MAX_LETTERS for token in kept):
        raise NotCovered(f"a token of more than {MAX_LETTERS} letters")
    k = _indexed_letters(len(kept), (letters.classes == LETTER_MIXED).any()) if k is None else k
    records, pairs = _records(vocabulary, kept, runs, letter_ids, letters)
    places = {letter: place for place, letter in enumerate(letters.bases)}
    codes = {token: [places[letter] for letter in token] for token in kept if _pure(token, letters)}
    mixed = sorted(token for token in kept if token not in codes)
    endings = endings_of(codes, kept, pairs)
    return DnaTables(
        letters=letters,
        k=k,
        longest=longest_tokens(codes, kept, k),
        spelled=spelled_tokens(codes, kept, k),
        tokens=records,
        pairs=pairs.bits.reshape(-1),
        pair_words=pairs.bits.shape[1],
        mixed_bytes=_padded(mixed),
        mixed_ids=np.array([len(token) << 16 | kept[token] for token in mixed], np.uint32),
        reach=max((_first_mixed(token, letters) for token in mixed), default=0),
        whole=whole_tokens(vocabulary, tokens, letters.steps),
        endings=endings,
        bases=bases_of(vocabulary, letters, codes, kept, k, endings) if endings else None,
    )


def _indexed_letters(num_tokens: int, has_mixed: bool) -> int:
    """Letters that tables of so many tokens are indexed by.

    One more where mixed letters merge: bases soon behind one are looked up by all of them.
    """
    most = SMALL_K if num_tokens <= SMALL_VOCABULARY else LARGE_K
    return min(most, 2 + num_tokens.bit_length() // 2 + has_mixed)


def _padded(tokens: list[bytes]) -> NDArray[np.uint8]:
    """uint8[tokens * MAX_LETTERS], one behind the other."""
    return np.frombuffer(b"".join(token.ljust(MAX_LETTERS, b"\0") for token in tokens), np.uint8)


def _reached(
    vocabulary: Vocabulary,
) -> tuple[dict[bytes, int], dict[bytes, int], dict[bytes, Run]]:
    """Ids of letters; ids and runs of the tokens that merges give for their own letters."""
    model, rules = vocabulary.model, make_bpe_rules(vocabulary)
    assert isinstance(model, Bpe)
    letter_ids = {
        token: token_id for token, token_id in rules.token_ids.items() if len(token.decode()) == 1
    }
    tokens, runs = {}, {}
    for token_id in {*letter_ids.values(), *(merged for _, merged in rules.merges.values())}:
        token = vocabulary.tokens[token_id]
        assert token is not None
        symbols = [letter_ids.get(letter.encode()) for letter in token.decode()]
        run = None if None in symbols else run_of([s for s in symbols if s is not None], rules)
        if run is not None:
            tokens[token], runs[token] = token_id, run
    return letter_ids, tokens, runs


def _pure(token: bytes, letters: Letters) -> bool:
    return all(letter in letters.bases for letter in token)


def _first_mixed(token: bytes, letters: Letters) -> int:
    """The place of the first letter that is no base."""
    return next(place for place, letter in enumerate(token) if letter not in letters.bases)


def _records(
    vocabulary: Vocabulary,
    kept: dict[bytes, int],
    runs: dict[bytes, Run],
    letter_ids: dict[bytes, int],
    letters: Letters,
) -> tuple[UInt64s, Pairs]:
    """The record of each id, and which of `kept` are compatible."""
    records = np.zeros(max(1, len(vocabulary)), np.uint64)
    if not kept:
        none = np.zeros(0, np.uint16)
        return records, Pairs(none, none, np.zeros((1, 1), np.uint32))
    in_letters = [[letter_ids[bytes([letter])] for letter in token] for token in kept]
    try:
        pairs = compatible_pairs(in_letters, [runs[t] for t in kept], make_bpe_rules(vocabulary))
    except ValueError as error:
        raise NotCovered(str(error)) from error
    if pairs.bits.nbytes > MAX_PAIR_BYTES:
        raise NotCovered(f"{pairs.bits.nbytes} bytes for pairs of tokens")
    for (token, token_id), left, right in zip(
        kept.items(), pairs.left.tolist(), pairs.right.tolist(), strict=True
    ):
        shorter = next(
            (kept[token[:n]] for n in range(len(token) - 1, 0, -1) if token[:n] in kept), NO_TOKEN
        )
        record = len(token) | shorter << PREFIX_SHIFT | left << LEFT_SHIFT | right << RIGHT_SHIFT
        records[token_id] = record | (not _pure(token, letters)) << MIXED_SHIFT
    return records, pairs
