"""Compares an encoder's ids with the witness's before the encoder may be used.

The callers choose the encoder, and decide what follows from a difference.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from typing import Literal

from service.engines.base import SelfTest
from service.engines.encoder import Encoder
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.post_processing import Content
from vocabularies.model.vocabulary import Vocabulary

SEQUENCE = "ACGTNacgtn"
TEXTS = (
    "",
    " ",
    "\n",
    "a",
    SEQUENCE,
    SEQUENCE * 7,
    "A" * 67,
    "GATTACA" * 9,
    "CA" * 33 + "N",
    "ACGTRYKMSWBDHVU",
    "AC GT\tAC\nGTACGTAA ACG",
    "  ACGTACGTTGCA \r\n",
    "NNACGTACGNNNACG",
    "ACG CGT GTA",
    "ACGT CGTA",
    "ACGTA CGTAC GTACN",
    "ACGTAC CGTACG",
    "acgtac CGTACg",
    "ACGé中T",
    "TTTxyzTTTTTTTTT",
    "N" * 9 + "ACGT",
    "N" * 10 + "ACGT",
    "-ACGT--N-.",
    "Engines differ where nobody looks: 3 spaces   , 1234567890 and it's they'LL've I'M",
    "  two before\n\n\n  and after  \t\r\n \n",
    "white space at the end with a break inside!\n \r\n \u3000",
    "def f(x):\n\treturn {'a': [x**2, 0.5e-3]}  # what?!\n\n",
    "Größe café e\u0301 ﬁ ½ ΑΣΣ ΣΑΣ ıİ \u017f '\u017f K \u1e9b\u0323 \u0344",
    "Привет, мир; שלום עולם, नमस्ते दुनिया, 한국어 문장, 漢字かなカナ混じり",
    "👩\u200d👩\u200d👧 🏳️\u200d🌈 👍🏽 \U0010ffff \ufeff\u200b\u00a0\u2028\u3000\x00\x1c\x7f\x85",
    "CamelCaseHTTPServer2x XMLÄÖÜß ǅ ʰ ⅷ ٣٤٥",
    "aaaa bbbb" * 7,
    "\u0915\u094d\u0937 \u0e01\u0e33 \u1100\u1161\u11a8 \u0958 \u2126 \ufb1d",
)
NUM_RANDOM_TEXTS = 40
MAX_RANDOM_TEXT = 80
NUM_TOKENS = 6  # In a random text.
MAX_DIFFERENCE = 1000  # Characters of the first difference that are kept.
MODES: tuple[Literal["match", "plain"], ...] = ("match", "plain")


def make_test_texts(vocabulary: Vocabulary) -> list[str]:
    """Make the texts of a self-test: TEXTS, and texts made from the vocabulary's tokens."""
    return [
        *TEXTS,
        *_token_texts(vocabulary),
        *_motif_texts(vocabulary),
        *_special_texts(vocabulary),
    ]


def _token_texts(vocabulary: Vocabulary) -> Iterator[str]:
    """Yield texts of joined random tokens."""
    chance = random.Random(0)
    tokens = vocabulary.tokens
    for i in range(NUM_RANDOM_TEXTS):
        chosen = (tokens[chance.randrange(len(tokens))] or b" " for _ in range(NUM_TOKENS))
        text = b"".join(chosen).decode(errors="ignore")
        yield text[:MAX_RANDOM_TEXT] if i % 2 else text[: MAX_RANDOM_TEXT // 2]


def _motif_texts(vocabulary: Vocabulary) -> Iterator[str]:
    """Yield texts of joined random motifs, which may be truncated."""
    chance = random.Random(0)
    motifs = vocabulary.motifs
    for _ in range(NUM_RANDOM_TEXTS if motifs else 0):
        chosen = (chance.choice(motifs) for _ in range(NUM_TOKENS))
        yield "".join(m[: chance.choice([len(m), len(m) - 1, len(m) // 2])] for m in chosen)


def _special_texts(vocabulary: Vocabulary) -> Iterator[str]:
    """Yield texts that contain the first and last special tokens."""
    tokens = vocabulary.special_tokens
    contents = [token.content for token in (*tokens[:4], *tokens[-4:])]
    for content in dict.fromkeys(contents):
        yield f"ACGTAC{content}ACGTAC"
        yield f"x {content} y{content}{content[:-1]}"
        yield f"a \n\t{content}\n {content} \r "


def digest_answers(encoder: Encoder, texts: Sequence[str]) -> str:
    """Return a SHA-256 of texts and of an encoder's ids, spans and refusals of them."""
    digest = hashlib.sha256(json.dumps(texts).encode())
    for mode in MODES:
        for spans in (False, True):
            content = encoder.encode(Batch(texts), EncodeOptions(False, mode, spans=spans))
            rows = [_row(content, row, spans) for row in range(len(texts))]
            digest.update(repr(rows).encode())
    return digest.hexdigest()


def compare(
    encoder: Encoder, witness: Encoder, texts: Sequence[str], recorded: str = ""
) -> SelfTest:
    """Compare an encoder's ids, spans and refusals with the witness's, text by text.

    Args:
        encoder: the encoder.
        witness: computes the right answers.
        texts: the texts.
        recorded: `digest_answers` of the witness; "" if it is not known. If the encoder's is the
            same, the answers are equal, and the witness need not compute them.
    """
    if recorded:
        with contextlib.suppress(Exception):  # Counted below, text by text.
            if digest_answers(encoder, texts) == recorded:
                return SelfTest(witness.name, len(texts), 0)
    different: set[int] = set()
    first = ""
    for mode in MODES:
        right = witness.encode(Batch(texts), EncodeOptions(False, mode, spans=True))
        for spans in (False, True):
            try:
                content = encoder.encode(Batch(texts), EncodeOptions(False, mode, spans=spans))
            except Exception as error:
                different |= set(range(len(texts)))
                first = first or f"any text: {error!r}"
                continue
            for row, text in enumerate(texts):
                actual, expected = _row(content, row, spans), _row(right, row, spans)
                if actual != expected:
                    different.add(row)
                    place = f"{text!r} (special={mode}): "
                    first = first or f"{place}{actual}, but {witness.name} says {expected}"
    return SelfTest(witness.name, len(texts), len(different), first[:MAX_DIFFERENCE])


def _row(content: Content, row: int, with_spans: bool) -> object:
    """Return a row in Python's own types: its refusal, or its ids and, if requested, its spans."""
    if row in content.errors:
        return content.errors[row]
    begin, end = content.offsets[row : row + 2]
    ids = content.ids[begin:end].tolist()
    if not with_spans:
        return ids
    assert content.spans is not None
    return ids, content.spans[begin:end].tolist()
