"""The tokenizer of the mtDNA model with the names of its published code.

A thin layer over Vocabulary, tables and windows. All arrays are NumPy arrays, which torch and other
libraries can use through DLPack without a copy. The functions process one sequence at a time on the
CPU, without an engine.

Source: mtdna-foundation-model, docs/02_tokenization.md and its code. If the two differ, this module
follows the code; the documentation's order at the junction is the option "prepend".
"""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vocabularies.formats import read_vocabulary
from vocabularies.formats.word_lists.kmer_config import (
    CONFIG_NAME,
    read_kmer_config,
    save_pretrained,
)
from vocabularies.model.tables import kmer_table
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.window_layout import Junction
from vocabularies.sequences.windows import Windows, make_windows

VOCAB_NAME = "vocab.json"
MAX_IDS = 1 << 25  # The limit of the GPU's tables; enough for 12-mers.


class KmerVocabulary:
    """A vocabulary of six special tokens, followed by all k-mers of A, C, G and T.

    Attributes:
        vocabulary: the wrapped Vocabulary, for engines.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Wrap a vocabulary of k-mers at every base.

        Raises:
            ValueError: the vocabulary does not encode k-mers at every base, or splits at white
                space.
        """
        model = vocabulary.model
        if not isinstance(model, Kmers) or (model.frame, model.stride) != ("sequence", 1):
            raise ValueError(f"a vocabulary of kind {vocabulary.kind} has no k-mer at every base")
        if model.whitespace != "letter":
            raise ValueError("this vocabulary separates k-mers by white space")
        self.vocabulary = vocabulary
        self.k = model.k
        self._model = model
        self._table = kmer_table(vocabulary)
        self._special = {token.content: token.id for token in vocabulary.special_tokens}

    @classmethod
    def build(cls, k: int = 6) -> KmerVocabulary:
        """Build the vocabulary for a k: special tokens 0 to 5, then the k-mers in counting order.

        k = 11 needs half a GiB of memory; k = 12 needs two GiB and six seconds.

        Raises:
            TypeError: k is not an integer.
            ValueError: k is not 1 to 12.
        """
        k = operator.index(k)
        if not 1 <= k <= 12:
            raise ValueError(f"k is {k}; it must be 1 to 12")
        return cls(read_kmer_config(b'{"model_type": "kmer", "k": %d}' % k, MAX_IDS))

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> KmerVocabulary:
        """Read the vocab_config.json of a folder, or its vocab.json if there is none.

        Raises:
            VocabularyError: the file is invalid; the error lists the place of every fault.
            ValueError: its vocabulary does not encode k-mers at every base.
            OSError: neither file exists.
        """
        config = Path(folder) / CONFIG_NAME
        if config.exists():
            return cls(read_kmer_config(config.read_bytes(), MAX_IDS))
        return cls(read_vocabulary({VOCAB_NAME: (Path(folder) / VOCAB_NAME).read_bytes()}))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write vocab_config.json and, for the model's published code, vocab.json into a folder."""
        save_pretrained(self.vocabulary, folder)
        words = {self.decode(i): i for i in range(len(self)) if self.vocabulary.tokens[i]}
        (Path(folder) / VOCAB_NAME).write_text(json.dumps(words))

    def __len__(self) -> int:
        """Return the number of ids: 4**k k-mers and the special tokens."""
        return len(self.vocabulary)

    def __contains__(self, token: str) -> bool:
        return token in self._special or self._is_kmer(token)

    def _is_kmer(self, token: str) -> bool:
        return len(token) == self.k and set(token) <= set(self._model.letters)

    def encode(self, token: str) -> int:
        """Return the id of a k-mer or special token, or the id of [UNK]. Example: "AAAAAA" is 6."""
        if self._is_kmer(token):
            return int(self.kmer_ids(token, np.zeros(1, np.int64))[0])
        return self._special.get(token, self._model.unknown_id)

    def decode(self, token_id: int) -> str:
        """Return the k-mer or special token of an id; "[UNK]" for a number that is not an id."""
        if not 0 <= token_id < len(self) or self.vocabulary.tokens[token_id] is None:
            token_id = self._model.unknown_id
        return self.vocabulary.token_string(token_id)

    def role_id(self, role: str) -> int:
        """Return the id of "pad", "cls", "mask", "unk" or "sep".

        Raises:
            KeyError: the vocabulary has no token for the role.
        """
        return self.vocabulary.roles[role]

    def in_case(self, seq: str) -> str:
        """Convert a sequence to upper case if the vocabulary's k-mers are in upper case."""
        return seq.upper() if self._model.case == "upper" else seq

    def kmer_ids(self, seq: str, positions: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the ids, int32[T], of the k-mers at int64[T] positions of a circular sequence."""
        data = np.frombuffer(seq.encode("ascii", "replace"), np.uint8)
        codes = self._table.codes[data].astype(np.int64)
        numbers = np.zeros(len(positions), np.int64)
        for i in range(self.k):
            numbers = numbers * len(self._model.letters) + codes[(positions + i) % len(data)]
        is_kmer = numbers < self._table.num_kmers
        ids = np.where(is_kmer, numbers + self._model.first_id, self._model.unknown_id)
        return ids.astype(np.int32)


def tokenize_sequence(
    seq: str,
    vocabulary: KmerVocabulary,
    k: int | None = None,
    stride: int = 1,
    max_seq_len: int | None = 512,
    circular: bool = True,
    het_levels: ArrayLike | None = None,
    junction: Junction = "append",
) -> dict[str, NDArray[Any]]:
    """Tokenize one sequence to its k-mers, with their positions and heteroplasmy.

    Args:
        seq: the bases, which are converted to upper case; a k-mer with a letter other than A, C, G
            and T is [UNK].
        vocabulary: gives the ids of k-mers.
        k: must equal the vocabulary's k; None: the vocabulary's k.
        stride: the number of bases from one k-mer to the next.
        max_seq_len: the largest number of tokens; further tokens are dropped. None: no limit.
            Nothing is padded.
        circular: whether the sequence is circular, so that the last k - 1 bases also have k-mers,
            which continue at the first base.
        het_levels: float[L], the heteroplasmy of each base, from 0 to 1: the share of copies with
            another allele. None: zeros.
        junction: where the k - 1 k-mers over the junction are placed: "append": last, in the order
            of their first bases, as in the model's code; "prepend": first, as in its documentation.

    Returns:
        NumPy arrays of T tokens, which torch.from_dlpack uses without a copy: input_ids int32,
        attention_mask int8 (1 everywhere), position_ids int64 (the position of the k-mer's first
        base) and het_values float32 (the heteroplasmy of that base).

    Raises:
        TypeError: the sequence is not a str, or the stride is not an integer.
        ValueError: a number is out of range, lengths differ, or a circular sequence is too short.

    Example, k = 3: ACGTT gives ACG CGT GTT TTA TAC at 0 1 2 3 4; with the junction prepended
    TTA TAC ACG CGT GTT at 3 4 0 1 2.
    """
    if not isinstance(seq, str):
        raise TypeError(f"seq must be a str, not {type(seq).__name__}")
    seq, stride = vocabulary.in_case(seq), operator.index(stride)
    _check(seq, vocabulary, k, stride, max_seq_len, circular, junction)
    length = len(seq)
    num_places = length if circular else max(length - vocabulary.k + 1, 0)
    positions = np.arange(0, num_places, stride, dtype=np.int64)
    if circular and junction == "prepend":
        num_before = int(np.count_nonzero(positions > length - vocabulary.k))
        positions = np.roll(positions, num_before)
    positions = positions[:max_seq_len]
    levels = _levels(het_levels, length)
    return {
        "input_ids": vocabulary.kmer_ids(seq, positions),
        "attention_mask": np.ones(len(positions), np.int8),
        "position_ids": positions,
        "het_values": levels[positions],
    }


def _check(
    seq: str,
    vocabulary: KmerVocabulary,
    k: int | None,
    stride: int,
    max_seq_len: int | None,
    circular: bool,
    junction: str,
) -> None:
    if k is not None and k != vocabulary.k:
        raise ValueError(f"k is {k}, and the vocabulary has {vocabulary.k}-mers")
    if stride < 1 or (max_seq_len is not None and max_seq_len < 0):
        raise ValueError(
            f"stride is {stride} and max_seq_len {max_seq_len}; they must be at least 1 and 0"
        )
    if junction not in ("append", "prepend"):
        raise ValueError(f"junction is {junction!r}; it must be append or prepend")
    if circular and 0 < len(seq) < vocabulary.k:
        raise ValueError(f"a circular sequence needs at least {vocabulary.k} bases")


def _levels(het_levels: ArrayLike | None, length: int) -> NDArray[np.float32]:
    if het_levels is None:
        return np.zeros(length, np.float32)
    levels = np.asarray(het_levels, np.float32)
    if levels.shape != (length,):
        raise ValueError(f"het_levels has the shape {levels.shape} for {length} bases")
    wrong = np.flatnonzero(~((levels >= 0) & (levels <= 1)))
    if len(wrong):
        raise ValueError(f"het_levels[{wrong[0]}] is {levels[wrong[0]]}; it must be 0 to 1")
    return levels


def window_sequence(
    seq: str,
    vocabulary: KmerVocabulary,
    *,
    window: int = 512,
    stride: int = 256,
    circular: bool = True,
    het_levels: ArrayLike | None = None,
    junction: Junction = "append",
    add_cls: bool = False,
) -> Windows:
    """Cut a genome into overlapping windows of its k-mers; those of a circular genome wrap.

    Args:
        seq: bases, as for `tokenize_sequence`.
        vocabulary: gives the ids of k-mers.
        window: the number of tokens in a window, without [CLS].
        stride: the number of tokens from the begin of one window to the begin of the next.
        circular: whether k-mers and windows wrap; otherwise the last windows are padded with [PAD].
        het_levels: as for `tokenize_sequence`.
        junction: as for `tokenize_sequence`.
        add_cls: whether [CLS] is put before every window, as the model's documentation says; its
            code does not do this.

    Returns:
        Windows: input_ids, attention_mask, position_ids, and in `channel` the heteroplasmy at the
            first base of each k-mer.

    Raises:
        ValueError: as `tokenize_sequence` and `make_windows`.

    Example: 16,569 bases give 65 windows of 512 tokens; the last window crosses the junction.
    """
    tokens = tokenize_sequence(
        seq, vocabulary, max_seq_len=None, circular=circular, junction=junction
    )
    return make_windows(
        tokens["input_ids"],
        tokens["position_ids"],
        window=window,
        stride=stride,
        circular=circular,
        pad_id=vocabulary.role_id("pad"),
        prefix=(vocabulary.role_id("cls"),) if add_cls else (),
        channel=_levels(het_levels, len(vocabulary.in_case(seq))),
    )
