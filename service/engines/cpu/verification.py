"""An engine's ids beside the reference's, on given texts or on samples made for the vocabulary."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from service.engines.base import Codec
from service.engines.concatenate import join_encoded
from service.engines.cpu.bpe.tokenizers_encoder import read_tokenizer
from service.engines.fault_isolation import encode_isolated, reraise_unless_failure
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Encoded, RowRefused
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.types import Bpe, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

LETTERS = "ACGTNacgtn RY-\n aeé中🙂1 .'"
MAX_TOKENS = 12
# So large a batch is made of copies of the texts, so that it takes the way of a large one.
MAX_COPIED_BYTES, MAX_COPIED_ROWS = 4 * 1024 * 1024, 65_536


@dataclass(frozen=True, slots=True)
class Verification:
    """What a comparison found.

    Attributes:
        witness: what the ids were compared with.
        num_texts, num_different: texts compared, and texts with differing ids.
        num_equal_ids, num_ids: ids of the reference, and how many of them stand at the same place.
        first_difference: the first differing text with both id lists; None when there is none.
        engines: what computed the ids.
    """

    witness: str
    num_texts: int
    num_different: int
    num_ids: int
    num_equal_ids: int
    first_difference: dict[str, object] | None
    engines: tuple[str, ...]


def sample_texts(vocabulary: Vocabulary, num_samples: int, seed: int = 0) -> list[str]:
    """Texts of the vocabulary's own tokens mixed with other letters; the same every time."""
    source = random.Random(seed)
    tokens = [
        token.decode(errors="ignore")
        for token_id, token in enumerate(vocabulary.tokens)
        if token and token_id not in vocabulary.special_ids
    ]
    texts = []
    for _ in range(num_samples):
        parts = source.choices(tokens, k=source.randint(0, MAX_TOKENS)) if tokens else []
        parts += source.choices(LETTERS, k=source.randint(0, MAX_TOKENS))
        source.shuffle(parts)
        texts.append("".join(parts))
    return texts


def verify(engine: Codec, vocabulary: Vocabulary, texts: Sequence[str]) -> Verification:
    """Compare an engine with the reference, text by text; slow, for a thread.

    Where small batches take another way than large ones, both ways must give the reference's ids.
    """
    answers = _answers(engine, vocabulary, texts)
    witness = _Witness(vocabulary)
    num_ids = num_equal = num_different = 0
    first: dict[str, object] | None = None
    for row, text in enumerate(texts):
        theirs = witness.ids(text)
        each = [None if row in got.errors else got.row(row).tolist() for got in answers]
        ours = next((ids for ids in each if ids != theirs), theirs)
        num_ids += len(theirs or ())
        num_equal += sum(a == b for a, b in zip(ours or (), theirs or (), strict=False))
        if ours != theirs:
            num_different += 1
            first = first or {"text": text, "engine": ours, "reference": theirs}
    engines = tuple(sorted({got.engine for got in answers}))
    return Verification(witness.name, len(texts), num_different, num_ids, num_equal, first, engines)


def _answers(engine: Codec, vocabulary: Vocabulary, texts: Sequence[str]) -> list[Encoded]:
    """The ids of the texts, first rows, in every way that the engine computes them."""
    batch = Batch(texts, options=DEFAULT_OPTIONS)
    crossover_bytes = engine.status().crossover_bytes
    if not texts or not crossover_bytes or crossover_bytes > MAX_COPIED_BYTES:
        return [encode_isolated(engine, vocabulary, batch)]
    copies = min(-(-crossover_bytes // max(1, len(batch.data))), MAX_COPIED_ROWS // len(texts) + 1)
    parts = [batch.part(row, row + 1) for row in range(len(batch))]
    alone = [encode_isolated(engine, vocabulary, part) for part in parts]
    return [join_encoded(alone), encode_isolated(engine, vocabulary, Batch([*texts] * copies))]


class _Witness:
    """The reference of a vocabulary: our oracle, or the library where only that defines the ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.library: Tokenizer | None = None
        self.name = "reference"
        if isinstance(vocabulary.model, Upstream):
            self.library = read_tokenizer(vocabulary.model.tokenizer_json)
            self.name = "tokenizers"
        elif isinstance(vocabulary.model, Bpe):
            self.library = read_tokenizer(tokenizer_json(vocabulary))
            self.name = "reference and tokenizers"

    def ids(self, text: str) -> list[int] | None:
        """The ids, None for a refused text.

        Raises:
            AssertionError: the oracle and the library disagree; one of them is wrong.
        """
        theirs = self._library_ids(text)
        if isinstance(self.vocabulary.model, Upstream):
            return theirs
        try:
            ours = tokenizer.encode(self.vocabulary, text).ids
        except RowRefused:
            return None
        assert theirs is None or theirs == ours, f"the two witnesses differ: {ours} and {theirs}"
        return ours

    def _library_ids(self, text: str) -> list[int] | None:
        """The library's ids, None where there is none or it fails on the text."""
        try:
            return None if self.library is None else list(self.library.encode(text).ids)
        except BaseException as error:
            reraise_unless_failure(error)
            return None
