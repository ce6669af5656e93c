"""DNATok's paths and its baselines in our own words, for sequences of equal length.

DNATok's IDs path maps letters on the host with NumPy, into new arrays or into pinned staging, and
copies ids; "HF native" is a tokenizer of characters in Python.

Source: E. Niktab and H. Patel, DNATok, section 2.2 and Table S1.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from benchmarks.papers.session import Session
from service.engines.cpu.engine import CpuEngine
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary

HF_NATIVE, HF_RUST = "HF native (Python characters)", "HF tokenizers (Rust)"
PLAIN_PYTHON = "a dict in Python"
ENCODE_64, STAGING_64, STAGING_32 = "DNATok encode i64", "DNATok staging i64", "DNATok staging i32"
OURS_CPU = "warptok CPU"
SLOW = (HF_NATIVE, HF_RUST, PLAIN_PYTHON)
FRONT_LETTERS = 1 << 18
"""Letters that slow ways get: their rate does not depend on more."""
WITHOUT_FRAME = EncodeOptions(add_special_tokens=False)
Texts = Sequence[str]
Matrix = NDArray[Any]


def rows_of(num_rows: int, num_letters: int) -> list[str]:
    """Make random rows of ACGT."""
    letters = np.frombuffer(b"ACGT", np.uint8)
    drawn = np.random.default_rng(42).integers(0, 4, (num_rows, num_letters))
    return [row.tobytes().decode() for row in letters[drawn]]


def front_of(texts: Texts) -> Texts:
    """Return the first rows, of about FRONT_LETTERS letters."""
    return texts[: max(1, FRONT_LETTERS // max(1, len(texts[0])))]


@dataclass(frozen=True, slots=True)
class DnaWay:
    """A way from rows of equal length to a matrix of ids on the host.

    Attributes:
        encode: does the work.
        matrix: makes a matrix of what it returns.
    """

    encode: Callable[[Texts], Any]
    matrix: Callable[[Any], Matrix] = np.asarray


class Letters:
    """The ids of letters, by DNATok's table of 256 entries, with its staging buffers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Fill the table: a byte that is no token has the id of N."""
        ids = {token: i for i, token in enumerate(vocabulary.tokens) if token}
        unknown = ids[b"N"]
        codes = [ids.get(bytes([byte]), unknown) for byte in range(256)]
        self.tables = {dtype: np.array(codes, dtype) for dtype in ("int32", "int64")}
        self._staging: dict[str, Matrix] = {}

    def encode(self, texts: Texts, dtype: str = "int64") -> Matrix:
        """Map letters to ids in a new matrix."""
        return self.tables[dtype][_bytes_of(texts)]

    def stage(self, texts: Texts, dtype: str, memory: Callable[[int], Any] | None = None) -> Matrix:
        """Map letters to ids in a reused buffer, which `memory` allocates, pinned for instance."""
        letters = _bytes_of(texts)
        size = letters.size * np.dtype(dtype).itemsize
        buffer = self._staging.get(dtype)
        if buffer is None or buffer.nbytes < size:
            made = np.empty(size, np.uint8) if memory is None else memory(size)
            buffer = self._staging[dtype] = made.view(dtype)
        staged = buffer[: letters.size].reshape(letters.shape)
        np.take(self.tables[dtype], letters, out=staged, mode="clip")
        return staged


def _bytes_of(texts: Texts) -> NDArray[np.uint8]:
    data = np.frombuffer("".join(texts).encode("ascii"), np.uint8)
    return data.reshape(len(texts), -1)


def host_ways(session: Session, vocabulary_name: str = "hyenadna") -> dict[str, DnaWay]:
    """List the ways of a vocabulary of characters on the host."""
    vocabulary = load(vocabulary_name)
    names = [token.decode() if token else "" for token in vocabulary.tokens]
    ids = {name: i for i, name in enumerate(names) if len(name) == 1}
    letters, engine = Letters(vocabulary), CpuEngine()
    engine.load(vocabulary)
    ways = {
        PLAIN_PYTHON: DnaWay(lambda texts: [[ids[letter] for letter in text] for text in texts]),
        HF_RUST: _rust(ids),
        ENCODE_64: DnaWay(letters.encode),
        STAGING_64: DnaWay(lambda texts: letters.stage(texts, "int64")),
        STAGING_32: DnaWay(lambda texts: letters.stage(texts, "int32")),
        OURS_CPU: DnaWay(
            lambda texts: engine.encode(vocabulary, Batch([*texts], options=WITHOUT_FRAME)),
            _matrix,
        ),
    }
    try:
        ways[HF_NATIVE] = _python_tokenizer(ids)
    except ImportError:
        session.leave_out("transformers is not installed: no HF native baseline of DNATok")
    return ways


def _matrix(encoded: Any) -> Matrix:
    num_rows = len(encoded.offsets) - 1
    ids: Matrix = encoded.ids
    return ids.reshape(num_rows, -1)


def _rust(ids: dict[str, int]) -> DnaWay:
    """Split every letter, and look it up as a word."""
    tokenizer = Tokenizer(WordLevel(dict(ids), unk_token="N"))
    tokenizer.pre_tokenizer = Split(Regex("."), "isolated")
    return DnaWay(
        lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
        lambda rows: np.array([row.ids for row in rows]),
    )


def _python_tokenizer(ids: dict[str, int]) -> DnaWay:
    """Make a tokenizer of characters upon transformers' class for tokenizers in Python."""
    base: Any = importlib.import_module("transformers").PreTrainedTokenizer
    names = {i: name for name, i in ids.items()}

    class CharacterTokenizer(base):  # type: ignore[misc]
        """Splits a text into its characters."""

        def get_vocab(self) -> dict[str, int]:
            return dict(ids)

        @property
        def vocab_size(self) -> int:
            return max(names) + 1

        def _tokenize(self, text: str, **_: Any) -> list[str]:
            return [*text]

        def _convert_token_to_id(self, token: str) -> int:
            return ids.get(token, ids["N"])

        def _convert_id_to_token(self, index: int) -> str:
            return names[index]

    tokenizer = CharacterTokenizer(pad_token="N", unk_token="N")
    return DnaWay(lambda texts: tokenizer([*texts], add_special_tokens=False)["input_ids"])


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Matrix:
    """Make a matrix of rows, padded on the right."""
    columns = itertools.zip_longest(*rows, fillvalue=pad_id)
    return np.array([*columns], np.int64).T
