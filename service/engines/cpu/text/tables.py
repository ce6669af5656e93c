"""Makes the arguments of the C++ extension for a vocabulary of byte-level BPE.

The symbols, automata and character classes are the same as in the GPU engine and the reference.
"""

from __future__ import annotations

import functools
import re
import secrets
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.text.bpe_symbols import bpe_symbols
from gpu.text.nfc_check import composed_tables, only_composes
from gpu.text.pretokenizer_automaton import COVERED, ONE_ROW, certain_automaton
from service.engines.cpu.text.special_tokens import NativeToken, special_tokens
from vocabularies.model.byte_alphabet import UTF8_BYTES
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.motif_pretokenizer import MOTIFS
from vocabularies.preprocessing.pretokenizers import ISOLATE
from vocabularies.preprocessing.unicode_classes import NUM_CODE_POINTS, class_mask, folded

# Bits of native/characters.hpp.
CLASS_BITS = {"L": 1, "N": 2, "s": 4, "M": 8, "Lu": 16, "Lt": 16, "Ll": 32}
FOLDED = 64
WHOLE, AUTOMATON, GPT2, CL100K, O200K = range(5)  # Families of native/windows.hpp.
LETTER_AND_BLANK = re.compile(rb"[A-Za-z] ")
SEED_BITS = 64
CACHE_BYTES = 6 << 20  # Of a thread: short pretokens and their further ids; up to 10 MB.
SHARED_CACHE_BYTES = 4 << 20  # Long pretokens; up to 18 MB where hardly any repeats.
CERTAIN_BYTES = 3 << 18  # Bounds of pairs of bytes, and symbols of characters.
NO_PAGES = np.zeros(0, np.uint16)


class Rule(NamedTuple):
    """A pretokenizer in the form of native/windows.hpp.

    Attributes:
        family: the set of masks that find its pretokens.
        single_digits: whether every digit is a pretoken; else up to three digits form one.
        has_contractions: whether a contraction belongs to the word before it; else it is a separate
            pretoken.
    """

    family: int
    single_digits: bool = False
    has_contractions: bool = True


RULES = {
    "gpt2": Rule(GPT2),
    "cl100k": Rule(CL100K),
    "llama3": Rule(CL100K),
    "qwen2": Rule(CL100K, single_digits=True),
    "o200k": Rule(O200K),
    "tekken": Rule(O200K, single_digits=True, has_contractions=False),
    "deepseek_v3": Rule(AUTOMATON),
}
"""The rule of each pattern; vocabularies without a rule split texts at strings, or not at all."""


def native_arguments(vocabulary: Vocabulary) -> tuple[Any, ...]:
    """Make the arguments of `make` for a vocabulary.

    Raises:
        NotCovered: the extension cannot encode it.
    """
    name, model = vocabulary.pretokenizer, vocabulary.model
    if not isinstance(model, Bpe) or not model.byte_level:
        raise NotCovered("the model is no byte-level BPE")
    parts = _parts(vocabulary)
    if name not in COVERED and not parts:
        raise NotCovered(f"the pretokenizer {name!r}")
    if vocabulary.normalizers and not only_composes(vocabulary):
        raise NotCovered("normalizers other than NFC")
    symbols = bpe_symbols(vocabulary, UTF8_BYTES)
    machine = certain_automaton(name if name in COVERED else "none")
    token_ids = {token: token_id for token, token_id in symbols.token_ids.items() if token}
    begins = np.zeros(len(token_ids) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, token_ids), np.int64, len(token_ids)), out=begins[1:])
    tokens = np.frombuffer(b"".join(token_ids), np.uint8)
    ids = np.fromiter(token_ids.values(), np.int32, len(token_ids))
    special = special_tokens(vocabulary.special_tokens)
    return (
        tuple(RULES.get(name, Rule(WHOLE))),
        (machine.entries, *_whole_pages(machine.pages, machine.page_rows)),
        _class_pages(),
        composed_tables() if vocabulary.normalizers else (NO_PAGES, NO_PAGES),
        (tokens, begins, ids, model.ignore_merges),
        symbols.entries,
        symbols.symbol_ids.astype(np.int32),
        special,
        parts,
        name in RULES and not any(map(_may_match_cut, special)),
        (secrets.randbits(SEED_BITS), secrets.randbits(SEED_BITS)),
    )


def _may_match_cut(token: NativeToken) -> bool:
    """Return whether a match may include a letter and the blank after it, where rows are cut.

    Example: the token "mask", if it strips the white space on its right side.
    """
    return bool(LETTER_AND_BLANK.search(token.content + b" " * token.strips_right))


def _parts(vocabulary: Vocabulary) -> list[bytes]:
    """List the strings that are separate pretokens."""
    if vocabulary.pretokenizer == MOTIFS:
        return [motif.encode() for motif in vocabulary.motifs]
    if vocabulary.pretokenizer.startswith(ISOLATE):
        return [vocabulary.pretokenizer.removeprefix(ISOLATE).encode()]
    return []


def _whole_pages(
    pages: NDArray[np.uint16], page_rows: NDArray[np.uint8]
) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Write out the pages of an automaton whose code points are all in one row."""
    is_one = pages >= ONE_ROW
    rows, numbers = np.unique(pages[is_one] & (ONE_ROW - 1), return_inverse=True)
    whole = pages.copy()
    whole[is_one] = len(page_rows) + numbers
    filled = np.repeat(rows.astype(np.uint8)[:, None], 256, axis=1)
    return whole, np.concatenate([page_rows, filled])


@functools.cache
def _class_pages() -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Return the classes of all code points, uint8[pages, 256], and each one's page."""
    classes = np.zeros(NUM_CODE_POINTS, np.uint8)
    for name, bit in CLASS_BITS.items():
        classes[class_mask(name, "rust")] |= bit
    letters = {letter for member in "sdmtlvre" for letter in folded(member, "rust")}
    classes[[ord(letter) for letter in letters if not letter.isascii()]] |= FOLDED
    numbers: dict[bytes, int] = {}  # Sorting the pages takes a hundred times as long.
    pages = [numbers.setdefault(page.tobytes(), len(numbers)) for page in classes.reshape(-1, 256)]
    rows = np.frombuffer(b"".join(numbers), np.uint8).reshape(-1, 256)
    return np.array(pages, np.uint16), rows


def table_bytes(arguments: tuple[Any, ...], num_threads: int) -> int:
    """Estimate the memory of the tables made from the arguments, and of all caches."""
    (tokens, begins, ids, _), pairs = arguments[4], arguments[5]
    fixed = SHARED_CACHE_BYTES + CERTAIN_BYTES + num_threads * CACHE_BYTES
    return int(fixed + tokens.nbytes + 6 * begins.nbytes + 3 * ids.nbytes + 4 * pairs.nbytes)
