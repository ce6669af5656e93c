"""Compares an engine's ids with the reference's, on given texts or on samples."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from service.engines.base import Codec
from service.engines.concatenate import join_encoded
from service.engines.cpu.patterns.isolated_witness import open_witness
from service.engines.fault_isolation import encode_isolated
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Encoded
from vocabularies.model.vocabulary import Vocabulary

LETTERS = "ACGTNacgtn RY-\n aeé中🙂1 .'"
MAX_TOKENS = 12
# The limits of a batch of copies of the texts, which an engine then computes as a large batch.
MAX_COPIED_BYTES, MAX_COPIED_ROWS = 4 * 1024 * 1024, 65_536


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a comparison.

    Attributes:
        witness: the name of the tokenizer that the ids were compared with.
        num_texts: the number of compared texts.
        num_different: the number of texts whose ids differ.
        num_ids: the number of ids of the reference.
        num_equal_ids: the number of these ids that the engine has at the same place.
        first_difference: the first differing text with both id lists; None if all are equal.
        engines: the engines that computed the ids.
    """

    witness: str
    num_texts: int
    num_different: int
    num_ids: int
    num_equal_ids: int
    first_difference: dict[str, object] | None
    engines: tuple[str, ...]


def sample_texts(vocabulary: Vocabulary, num_samples: int, seed: int = 0) -> list[str]:
    """Make texts of random tokens and other letters; the same seed gives the same texts."""
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
    """Compare an engine with the reference, text by text. This is slow, so call it in a thread.

    If different engines compute small and large batches, both must give the reference's ids.
    """
    answers = _encode_every_way(engine, vocabulary, texts)
    num_ids = num_equal = num_different = 0
    first: dict[str, object] | None = None
    with open_witness(vocabulary) as witness:
        all_expected = [witness.ids(text) for text in texts]
    for row, (text, expected) in enumerate(zip(texts, all_expected, strict=True)):
        rows = [None if row in each.errors else each.row(row).tolist() for each in answers]
        actual = next((ids for ids in rows if ids != expected), expected)
        num_ids += len(expected or ())
        num_equal += sum(a == b for a, b in zip(actual or (), expected or (), strict=False))
        if actual != expected:
            num_different += 1
            first = first or {"text": text, "engine": actual, "reference": expected}
    engines = tuple(sorted({each.engine for each in answers}))
    return Verification(witness.name, len(texts), num_different, num_ids, num_equal, first, engines)


def _encode_every_way(engine: Codec, vocabulary: Vocabulary, texts: Sequence[str]) -> list[Encoded]:
    """Encode the texts; with a crossover, both in a small and in a large batch.

    The texts are the first rows of each result; a large batch has more rows.
    """
    batch = Batch(texts, options=DEFAULT_OPTIONS)
    crossover_bytes = engine.status().crossover_bytes
    if not texts or not crossover_bytes or crossover_bytes > MAX_COPIED_BYTES:
        return [encode_isolated(engine, vocabulary, batch)]
    copies = min(-(-crossover_bytes // max(1, len(batch.data))), MAX_COPIED_ROWS // len(texts) + 1)
    parts = [batch.part(row, row + 1) for row in range(len(batch))]
    alone = [encode_isolated(engine, vocabulary, part) for part in parts]
    return [join_encoded(alone), encode_isolated(engine, vocabulary, Batch([*texts] * copies))]
