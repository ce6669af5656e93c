"""Makes the tables of characters and k-mers: the class, code and id of each letter.

cuda/kmers/letters.cuh reads them. NumPy only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.kernels.families import BYTES, CHARACTERS, KMERS, STRIDED_KMERS, Family
from gpu.kernels.job import constant
from gpu.kmers.two_bit_letters import four_characters, four_letters
from vocabularies.model.tables import (
    BASE,
    DROPPED,
    OTHER,
    SPACE,
    CharacterTable,
    character_table,
    kmer_table,
    mark_special_bytes,
)
from vocabularies.model.types import Bpe, Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer, normalize
from vocabularies.preprocessing.unicode_classes import class_mask
from vocabularies.sequences.strand import COMPLEMENT

UInt32s = NDArray[np.uint32]
Arrays = dict[str, NDArray[np.generic]]
Numbers = dict[str, int]

ASCII, NUM_BYTES = 128, 256
OTHER_LETTER, WIDE_SPACE = constant("OTHER_LETTER"), constant("WIDE_SPACE")
SPECIAL_LETTER, NUM_LETTERS = constant("SPECIAL_LETTER"), constant("NUM_LETTERS")
NOT_A_CODE, CLASS_SHIFT = constant("NOT_A_CODE"), constant("CLASS_SHIFT")
SPECIAL = constant("SPECIAL")
BREAK, WIDE, MARK = (
    constant(f"FALLBACK_{name}") << constant("FALLBACK_SHIFT") for name in ("BREAK", "WIDE", "MARK")
)
MAX_WIDE = constant("MAX_WIDE")
MAX_IDS = NOT_A_CODE
NOTHING: Numbers = dict.fromkeys(
    (
        "kmer_count",
        "kmer_shared",
        "kmer_first_id",
        "kmer_unknown_id",
        "kmer_shift",
        "keeps_remainder",
        "has_words",
        "can_wrap",
        "wraps",
        "piece_ids",
        "four_letters",
        "four_codes",
        "four_fold",
        "four_case_flags",
    ),
    0,
)
"""Zeros for the fields that characters do not use, in place of those of earlier k-mers."""
MIN_PIECE = 64
PAGE, SURROGATES = 128, range(0xD800, 0xE000)
_HAS_ASCII = re.compile("[\0-\x7f]").search
MAX_TEMPLATE = 6  # Begin and end tokens of a row or a piece for which workspaces have room.


class LetterTables(NamedTuple):
    """The family and the tables of a vocabulary of characters or k-mers.

    Attributes:
        family: the kernels that encode it.
        arrays: the arrays for the device, by Job field.
        numbers: the values of other Job fields.
    """

    family: Family
    arrays: Arrays
    numbers: Numbers


def letter_tables_of(vocabulary: Vocabulary) -> LetterTables | None:
    """Make the tables of a vocabulary of characters or k-mers; return None for any other.

    Raises:
        NotCovered: the kernels do not support the vocabulary.
    """
    if len(vocabulary) > MAX_IDS:
        raise NotCovered(f"{len(vocabulary)} ids; a letter's entry has room for {MAX_IDS}")
    if isinstance(vocabulary.model, Kmers):
        return _kmers(vocabulary, vocabulary.model)
    table = character_table(vocabulary)
    return None if table is None else _characters(vocabulary, table)


def _kmers(vocabulary: Vocabulary, model: Kmers) -> LetterTables:
    if vocabulary.normalizers or vocabulary.pretokenizer != "none":
        raise NotCovered("k-mers of a text that is rewritten or cut first")
    if model.frame == "run" and model.whitespace == "words":
        raise NotCovered("words of a vocabulary whose k-mers begin anew in every run of letters")
    _check_template(vocabulary, model.max_piece_tokens)
    _check_kmers(vocabulary, model)
    table, is_run = kmer_table(vocabulary), model.frame == "run"
    has_words, splits = model.whitespace == "words", model.whitespace != "letter"
    is_other = table.codes >= table.num_kmers
    codes = np.where(is_other, NOT_A_CODE, table.codes).astype(np.uint32)
    outside = OTHER if is_run else BASE
    classes = table.classes if is_run else np.full(NUM_BYTES, BASE, np.uint8)
    if splits:
        classes = np.where(table.is_space, SPACE, classes)
    space = SPACE if splits else outside
    entries = _entries(codes, classes, (NOT_A_CODE, outside), (NOT_A_CODE, space))
    # Characters that split words are left to the CPU engine, see gpu.batch.kernel_choice.
    marks = table.needs_reference if has_words else mark_special_bytes(vocabulary)
    _add_flags(entries, marks, is_wide=True)
    letter_ids = np.full(NUM_LETTERS, model.unknown_id, np.uint32)
    letter_ids[:NUM_BYTES] = table.letter_ids
    change = str.upper if model.case == "upper" else str
    numbers = NOTHING | {
        "kmer_k": model.k,
        "kmer_stride": model.stride,
        "kmer_base": len(model.letters),
        "kmer_count": table.num_kmers,
        "kmer_shared": model.k - model.stride,
        "kmer_of_shared": len(model.letters) ** (model.k - model.stride),
        "kmer_of_stride": len(model.letters) ** model.stride,
        "kmer_first_id": model.first_id,
        "kmer_unknown_id": model.unknown_id,
        "kmer_shift": model.k - 1 if model.junction == "prepend" else 0,
        "keeps_remainder": int(model.remainder == "letters"),
        "has_words": int(has_words),
        "can_wrap": int(model.stride == 1 and not is_run),
        "wraps": int(model.circular),
        "piece_ids": model.max_piece_tokens or 0,
        **four_letters(model, entries),
    }
    wide = _wide_letters(change, lambda character: character.isspace())
    family = KMERS if model.stride == 1 else STRIDED_KMERS
    numbers |= {"num_wide": len(wide)}
    return LetterTables(family, _arrays(entries, letter_ids, wide), numbers)


def _characters(vocabulary: Vocabulary, table: CharacterTable) -> LetterTables:
    _check_template(vocabulary, None)
    model, unknown = vocabulary.model, int(table.ids[-1])
    is_bpe = isinstance(model, Bpe)
    marks = mark_special_bytes(vocabulary)
    if table.by_byte and (table.ascii_only or marks.any()):
        raise NotCovered("bytes in upper case, or with special tokens among them")
    if not table.by_byte and _has_wide_ids(vocabulary, table, unknown):
        raise NotCovered("a letter that is not ASCII has an id of its own")
    ids = table.ids[:NUM_BYTES]
    classes = np.where(ids == DROPPED, SPACE, BASE)
    dropped = is_bpe and vocabulary.pretokenizer != "none"
    other = (0, SPACE) if unknown == DROPPED else (unknown, BASE)
    values = np.where(ids == DROPPED, 0, ids).astype(np.uint32)
    entries = _entries(values, classes, other, (0, SPACE) if dropped else other)
    _add_flags(entries, marks, is_wide=not table.by_byte)
    if is_bpe:
        change = functools.partial(_normalized, vocabulary.normalizers)
        wide = _wide_letters(change, _is_rust_space)
    else:
        wide = _wide_letters(str.upper if table.ascii_only else str, str.isspace)
    numbers = NOTHING | {
        "kmer_k": 1,
        "kmer_stride": 1,
        "kmer_base": MAX_IDS,
        "num_wide": len(wide),
        **four_characters(entries),
    }
    family = BYTES if table.by_byte else CHARACTERS
    arrays = _arrays(entries, np.zeros(NUM_LETTERS, np.uint32), wide)
    return LetterTables(family, arrays, numbers)


def _has_wide_ids(vocabulary: Vocabulary, table: CharacterTable, unknown: int) -> bool:
    """Return whether any character that is not ASCII has an id of its own."""
    if not isinstance(vocabulary.model, Bpe):
        return bool((table.ids[ASCII:] != unknown).any())
    special = {token.id for token in vocabulary.special_tokens}
    tokens = (token for i, token in enumerate(vocabulary.tokens) if i not in special and token)
    return any(not token.isascii() and len(token.decode(errors="replace")) == 1 for token in tokens)


def _check_template(vocabulary: Vocabulary, piece_ids: int | None) -> None:
    added = len(vocabulary.prefix) + len(vocabulary.suffix)
    if added > MAX_TEMPLATE:
        raise NotCovered(f"more than {MAX_TEMPLATE} begin and end tokens")
    if added and piece_ids is not None and piece_ids < MIN_PIECE:
        raise NotCovered(f"begin and end tokens around every {piece_ids} ids, below {MIN_PIECE}")


def _check_kmers(vocabulary: Vocabulary, model: Kmers) -> None:
    """Check that the ids of k-mers follow the order of their letters, as the kernels assume."""
    first, count = model.first_id, len(model.letters) ** model.k
    tokens = vocabulary.tokens[first : first + count]
    special = any(first <= token_id < first + count for token_id in vocabulary.special_ids)
    if special or any(token is None or len(token) != model.k for token in tokens):
        raise NotCovered("an id of the k-mers means something else")
    spelled = np.frombuffer(b"".join(token or b"" for token in tokens), np.uint8)
    letters = np.frombuffer(model.letters.encode(), np.uint8)
    numbers = np.arange(count)
    for place in range(model.k):
        power = len(letters) ** (model.k - 1 - place)
        if (spelled[place :: model.k] != letters[numbers // power % len(letters)]).any():
            raise NotCovered("an id of the k-mers means something else")


def _entries(
    values: UInt32s, classes: NDArray[np.integer], other: tuple[int, int], space: tuple[int, int]
) -> UInt32s:
    """Return uint32[NUM_LETTERS], the value and class of each byte and of non-ASCII characters.

    `other` and `space` are the (value, class) of such a character and of wide white space.
    """
    entries = np.zeros(NUM_LETTERS, np.uint32)
    entries[:NUM_BYTES] = values | classes.astype(np.uint32) << np.uint32(CLASS_SHIFT)
    entries[OTHER_LETTER] = other[0] | other[1] << CLASS_SHIFT
    entries[WIDE_SPACE] = space[0] | space[1] << CLASS_SHIFT
    entries[SPECIAL_LETTER] = NOT_A_CODE | SPECIAL << CLASS_SHIFT
    return entries


def _add_flags(entries: UInt32s, marks: NDArray[np.bool_], *, is_wide: bool) -> None:
    """Mark the bytes that the plain kernels leave to the fallback kernels."""
    of_bytes = entries[:NUM_BYTES]
    of_bytes[of_bytes >> np.uint32(CLASS_SHIFT) != BASE] |= np.uint32(BREAK)
    of_bytes[marks] |= np.uint32(MARK)
    if is_wide:
        of_bytes[ASCII:] |= np.uint32(WIDE)


def _arrays(entries: UInt32s, letter_ids: UInt32s, wide: UInt32s) -> Arrays:
    return {
        "letter_table": entries,
        "letter_ids": letter_ids,
        "wide_letters": wide,
        "complement": np.ascontiguousarray(COMPLEMENT),
    }


def _is_rust_space(character: str) -> bool:
    return bool(class_mask("s", "rust")[ord(character)])


def _normalized(steps: tuple[Normalizer, ...], character: str) -> str:
    """Return a normalized character; only those that lower() changes need the normalizers."""
    if not steps or character.lower() == character:
        return character
    return normalize(character, steps)[0]


def _wide_letters(change: Callable[[str], str], is_space: Callable[[str], bool]) -> UInt32s:
    """Return uint32[W, 4]: the non-ASCII characters that do not become one OTHER_LETTER, sorted.

    The columns: code point, number of letters that it becomes, the first two letters, the third.

    Example: in upper case, U+00DF becomes two letters, S and S.
    """
    rows = []
    for number in _candidates():
        character = chr(number)
        letters = [
            ord(letter) if letter.isascii() else WIDE_SPACE if is_space(letter) else OTHER_LETTER
            for letter in change(character)
        ]
        if letters != [OTHER_LETTER]:
            first, second, third = (letters + [0] * MAX_WIDE)[:MAX_WIDE]
            rows.append((number, len(letters), first | second << 16, third))
    return np.array(rows, np.uint32).reshape(-1, 4)


@functools.cache
def _candidates() -> tuple[int, ...]:
    """Return the non-ASCII characters that are white space or change in an unusual way.

    In upper or lower case, these become several characters or an ASCII character.
    """

    def is_usual(text: str) -> bool:
        cases = text.upper(), text.lower()
        return all(len(case) == len(text) and not _HAS_ASCII(case) for case in cases)

    found = []
    for page in range(ASCII, 0x110000, PAGE):
        if page not in SURROGATES and is_usual("".join(map(chr, range(page, page + PAGE)))):
            found += [number for number in range(page, page + PAGE) if _is_space(chr(number))]
        elif page not in SURROGATES:
            numbers = range(page, page + PAGE)
            found += [n for n in numbers if _is_space(chr(n)) or not is_usual(chr(n))]
    return tuple(found)


def _is_space(character: str) -> bool:
    return character.isspace() or _is_rust_space(character)
