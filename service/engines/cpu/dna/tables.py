"""Makes the arrays of a vocabulary of DNA letters for the C++ extension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.dna.alphabet import DROPPED, GAP, MIXED, NO_LETTER, Letters
from gpu.dna.tables import DnaTokens, dna_tokens
from gpu.errors import NotCovered
from vocabularies.batch.batch import SPECIAL
from vocabularies.model.tables import ASCII
from vocabularies.model.types import SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import normalize
from vocabularies.reference.bpe import token_ids_of

# Codes of letters in native/: those of bases, then of other letters that merge, then these.
MERGING = 32
GAP_CODE, DROPPED_CODE, UNKNOWN_CODE, NOT_ASCII_CODE = range(MERGING, MERGING + 4)
FIRST_MIXED = 4
REASONS = ("", "dna_unknown_letter", "dna_not_ascii", "dna_special_token")
"""Why the extension does not support a row, by the number that it returns."""
ACCEPT, KEEP_AS_TEXT, LEAVE_ROW = range(3)
MAX_SPECIAL_BYTES = 64  # A longer one could hide the whole overlap of two parts of a row.
MOST_INDEXED = 9  # Letters by which last tokens are looked up.


@dataclass(frozen=True, slots=True)
class FoundToken:
    """The action of the extension when it finds the text of a special token.

    Attributes:
        content: the text; b"" if the first byte alone decides.
        token_id: the id of the token.
        first_byte: the first byte of the text.
        action: ACCEPT, KEEP_AS_TEXT or LEAVE_ROW.
    """

    content: bytes
    token_id: int
    first_byte: int
    action: int

    def row(self) -> tuple[bytes, int, int, int]:
        """Return the fields in the form that the extension accepts."""
        return self.content, self.token_id, self.first_byte, self.action


def native_arguments(vocabulary: Vocabulary) -> tuple[Any, ...]:
    """Make the arguments of the extension's `make`.

    Raises:
        NotCovered: the vocabulary has other letters than DNA, or the extension does not support it.
    """
    tokens = dna_tokens(vocabulary)
    letters = tokens.letters
    if any(not motif.isascii() for motif in vocabulary.motifs):
        raise NotCovered("motifs with letters that are not ASCII")
    letter_codes, num_letters = _letter_codes(letters)
    codes = _byte_codes(letters, letter_codes)
    run = np.frombuffer(letters.steps.letters, np.uint8) == letters.steps.run_letter
    is_run = (run & (letters.steps.run_length > 0)).astype(np.uint8)
    if (codes[is_run == 1] < FIRST_MIXED).any():
        raise NotCovered("runs of a base are replaced")
    found = [_found_tokens(vocabulary, letters, mode) for mode in SPECIAL]
    if any(codes[token.first_byte] < MERGING for mode in found for token in mode):
        raise NotCovered("a special token begins with a letter that merges")
    ids = token_ids_of(vocabulary)
    motifs = [(motif.encode(), ids[motif.encode()]) for motif in vocabulary.motifs]
    return (
        _token_arrays(tokens, letter_codes),
        (np.ascontiguousarray(tokens.pairs.bits), tokens.pairs.bits.shape[1]),
        (_indexed_letters(len(tokens.ids)), num_letters, len(letters.bases)),
        _letter_arrays(letters, codes, is_run),
        (letters.steps.strips, letters.steps.run_length, letters.run_id),
        tuple([token.row() for token in mode] for mode in found),
        (motifs, [*tokens.whole.items()]),
    )


def table_bytes(arguments: tuple[Any, ...]) -> int:
    """Estimate the memory of the extension's tables from the arguments of `make`."""
    (_, _, ids, _, _), (pairs, _), (k, _, _), *_ = arguments
    # Measured (2026-11): 9 MB for DNABERT-2, 33 MB for GENA-LM.
    return int(pairs.nbytes + 20 * 4**k + 400 * len(ids))


def _indexed_letters(num_tokens: int) -> int:
    """Return the number of last letters by which the last token of a text is looked up.

    One letter more makes the table four times as large; one less makes more texts use lists.
    DNABERT-2 has 8, for 0.5 MB, which fit the second-level cache. GENA-LM has 9, as with 8 many
    more texts would use lists.
    """
    return min(MOST_INDEXED, 2 + num_tokens.bit_length() // 2)


def _letter_codes(letters: Letters) -> tuple[NDArray[np.uint8], int]:
    """Return uint8[128], the code of each letter, and the number of codes that merge."""
    codes = np.full(ASCII, UNKNOWN_CODE, np.uint8)
    classes = letters.classes[:ASCII]
    mixed = np.flatnonzero(classes == MIXED)
    if FIRST_MIXED + len(mixed) > MERGING:
        raise NotCovered(f"{len(mixed)} letters that merge beside the bases")
    bases = np.frombuffer(letters.bases, np.uint8)
    codes[bases] = np.arange(len(bases))
    codes[mixed] = FIRST_MIXED + np.arange(len(mixed))
    codes[(classes == GAP) & (letters.ids[:ASCII] != NO_LETTER)] = GAP_CODE
    codes[classes == DROPPED] = DROPPED_CODE
    return codes, FIRST_MIXED + len(mixed)


def _byte_codes(letters: Letters, letter_codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return uint8[256], the code of the letter that each byte of a text becomes."""
    codes = np.full(256, NOT_ASCII_CODE, np.uint8)
    codes[:ASCII] = letter_codes[np.frombuffer(letters.steps.letters, np.uint8)[:ASCII]]
    return codes


def _token_arrays(
    tokens: DnaTokens, letter_codes: NDArray[np.uint8]
) -> tuple[NDArray[np.generic], ...]:
    spelled = np.frombuffer(b"".join(tokens.ids), np.uint8)
    lengths = np.fromiter(map(len, tokens.ids), np.uint8, len(tokens.ids))
    ids = np.fromiter(tokens.ids.values(), np.uint16, len(tokens.ids))
    return letter_codes[spelled], lengths, ids, tokens.pairs.left, tokens.pairs.right


def _letter_arrays(
    letters: Letters, codes: NDArray[np.uint8], is_run: NDArray[np.uint8]
) -> tuple[NDArray[np.generic], ...]:
    mapped = np.frombuffer(letters.steps.letters, np.uint8)
    is_stripped = np.zeros(256, np.uint8)
    is_stripped[:ASCII] = np.isin(mapped[:ASCII], letters.stripped)
    return codes, letters.ids[mapped], mapped, is_stripped, is_run


def _found_tokens(vocabulary: Vocabulary, letters: Letters, mode: str) -> list[FoundToken]:
    """List the special tokens that are searched in a mode, the longest first."""
    found: dict[bytes, list[FoundToken]] = {}
    for token in sorted(vocabulary.special_tokens, key=lambda token: not token.special):
        if token.matched:
            content = token.content.encode()
            found.setdefault(content, [*_find_token(vocabulary, letters, token, mode)])
    return sorted((t for each in found.values() for t in each), key=lambda t: -len(t.content))


def _find_token(
    vocabulary: Vocabulary, letters: Letters, token: SpecialToken, mode: str
) -> Iterator[FoundToken]:
    content = token.content.encode()
    is_simple = not (token.lstrip or token.rstrip or token.single_word or token.normalized)
    if is_simple and content.isascii() and len(content) <= MAX_SPECIAL_BYTES:
        action = ACCEPT
        if token.special and mode != "match":
            action = KEEP_AS_TEXT if mode == "plain" else LEAVE_ROW
        yield FoundToken(content, token.id, content[0], action)
        return
    normalized = normalize(token.content, vocabulary.normalizers)[0].encode()
    for byte in _first_bytes(letters, {content[:1], normalized[:1]}):
        yield FoundToken(b"", token.id, byte, LEAVE_ROW)


def _first_bytes(letters: Letters, firsts: set[bytes]) -> Iterator[int]:
    """Yield the bytes of a text that normalizers may convert to one of the given bytes."""
    steps = letters.steps
    for byte in range(256):
        made = steps.letters[byte]
        is_run = steps.run_length and made == steps.run_letter
        if {bytes([byte]), bytes([made])} & firsts:
            yield byte
        elif is_run and bytes([steps.run_content]) in firsts:
            yield byte
