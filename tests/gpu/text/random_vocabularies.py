"""Makes vocabularies of few merges, by rule or at random, and texts for them."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

MAX_TOKEN = 40
SEEDS = st.integers(0, 2**32)


def vocabulary_of(merges: list[tuple[bytes, bytes]]) -> Vocabulary:
    """Return a vocabulary of all bytes and of the tokens that these merges make."""
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in merges:
        if left + right not in tokens:
            tokens.append(left + right)
    pairs = tuple((tokens.index(left), tokens.index(right)) for left, right in merges)
    return Vocabulary(tuple(tokens), Bpe(pairs), pretokenizer="none")


@st.composite
def vocabularies(draw: st.DrawFn, letters: list[str]) -> Vocabulary:
    """Draw random merges in the order of training or in any; some tokens have several merges."""
    chance = random.Random(draw(SEEDS))
    symbols = sorted({bytes([byte]) for letter in letters for byte in letter.encode()})
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(draw(st.integers(4, 60))):
        pair = chance.choice(symbols), chance.choice(symbols)
        if len(pair[0] + pair[1]) <= MAX_TOKEN and pair not in merges:
            merges.append(pair)
            symbols.append(pair[0] + pair[1])
    if draw(st.booleans()):
        chance.shuffle(merges)
    return vocabulary_of(merges)


def doubled(unit: bytes, times: int) -> list[tuple[bytes, bytes]]:
    """Return merges that make `unit`, and `unit` repeated 2, 4 ... 2 ** `times` times."""
    merges = [(unit[:i], unit[i : i + 1]) for i in range(1, len(unit))]
    return merges + [(unit * 2**i, unit * 2**i) for i in range(times)]


def random_merges(chance: random.Random, letters: str, number: int) -> list[tuple[bytes, bytes]]:
    """Return random merges in the order of training; some tokens have several merges."""
    symbols = [letter.encode() for letter in letters]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(number):
        pair = chance.choice(symbols), chance.choice(symbols[-6:])
        pair = pair[::-1] if chance.random() < 0.5 else pair
        if len(pair[0] + pair[1]) <= MAX_TOKEN and pair not in merges:
            merges.append(pair)
            symbols.append(pair[0] + pair[1])
    return merges


def text_of(chance: random.Random, letters: list[str], length: int) -> str:
    """Return a text of about `length` bytes, never more, in which letters and parts repeat."""
    text = ""
    while True:
        part = chance.choice(letters)
        if chance.random() < 0.3:
            part *= chance.choice([2, 3, 7, 30, 140])
        if text and chance.random() < 0.1:
            part = text[chance.randrange(len(text)) :]
        for letter in part:
            if len((text + letter).encode()) > length:
                return text
            text += letter
