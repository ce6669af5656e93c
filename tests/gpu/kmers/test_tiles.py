"""Characters and k-mers of plain batches: rows of all sizes in tiles, ids of all widths."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from gpu.kernels.job import constant
from gpu.streaming import encode_stream
from tests.support.each_device import DEVICES, new_engine
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

TILE = constant("KMER_TILE")
PLAIN = EncodeOptions(add_special_tokens=False)
ROWS = {
    "one": lambda chance: [3 * TILE + 77],
    "reads": lambda chance: chance.integers(145, 156, 90),
    "tiny": lambda chance: chance.integers(0, 14, 1200),
    "mostly_empty": lambda chance: chance.integers(0, 300, 3000) * (chance.random(3000) < 0.03),
    "borders": lambda chance: TILE + chance.integers(-20, 20, 4),
    "all": lambda chance: chance.choice([0, 1, 5, 6, 7, 40, 500, 2047, 2048], 40),
}
NAMES = "hyenadna", "mtdna6", "nt_v2", "dnabert1_3mer"
LETTERS = {"plain": "ACGT", "soft": "ACGT" * 40 + "acgt", "strange": "ACGT" * 200 + "NXn"}


engine_of = functools.cache(new_engine)


def own_kmers(k: int, stride: int, remainder: str, junction: str, letters: str) -> Vocabulary:
    """K-mers with an id for each letter; they wrap where the stride is 1 and none is left."""
    words = [""]
    for _ in range(k):
        words = [word + letter for word in words for letter in letters]
    tokens = [b"<unk>", *(word.encode() for word in words), *(b"=" + c.encode() for c in letters)]
    letter_ids = tuple((letter, 1 + len(words) + i) for i, letter in enumerate(letters))
    circular = stride == 1 and remainder == "drop"
    model = Kmers(
        *(k, 1, 0, letters),
        stride=stride,
        letter_ids=letter_ids,
        remainder=remainder,
        circular=circular,
        junction=junction,
    )
    return Vocabulary(tuple(tokens), model, ())


VOCABULARIES = {
    **{name: (lambda name=name: load(name)) for name in NAMES},
    "wraps_ahead": lambda: own_kmers(6, 1, "drop", "prepend", "ACGT"),
    "wraps_behind": lambda: own_kmers(5, 1, "drop", "append", "TGCA"),
    "overlaps": lambda: own_kmers(4, 3, "letters", "append", "ACGT"),
    "one_letter": lambda: own_kmers(1, 1, "drop", "append", "ACGT"),
    "two_letters": lambda: own_kmers(3, 2, "letters", "append", "AC"),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.slow
def test_rows_of_all_sizes_have_the_ids_of_the_reference(device, name, rows, letters):
    engine, vocabulary = engine_of(device), VOCABULARIES[name]()
    chance = np.random.default_rng([*f"{name} {rows} {letters}".encode()])
    sizes = [int(size) for size in ROWS[rows](chance)]
    if isinstance(vocabulary.model, Kmers) and vocabulary.model.circular:
        sizes = [size if size == 0 or size >= vocabulary.model.k else 7 for size in sizes]
        sizes = [size for size in sizes if size]  # What is shorter than a k-mer is refused.
    texts = ["".join(chance.choice([*LETTERS[letters]], size)) for size in sizes]
    wanted = [tokenizer.encode(vocabulary, text, PLAIN).ids for text in texts]
    ids = [token_id for row in wanted for token_id in row]
    batch = Batch.from_bytes([text.encode() for text in texts], PLAIN)
    for dtype in (np.int32, np.uint16, np.uint8):
        if len(vocabulary) > np.iinfo(dtype).max:
            continue
        out = np.zeros(len(ids) + 9, dtype)
        offsets = encode_stream(engine, vocabulary, batch.data, batch.offsets, out)
        assert offsets.tolist() == [0, *np.cumsum([*map(len, wanted)]).tolist()]
        assert out[: len(ids)].tolist() == ids
        assert not out[len(ids) :].any()


@pytest.mark.parametrize("name", ["mtdna6", "nt_v2"])
@pytest.mark.slow
def test_rows_of_more_letters_than_are_marked_are_found(name):
    """The row of a letter is noted every so many letters, of a long row not to its end."""
    marked = TILE * constant("MOST_MARKS")
    sizes = [3, marked + 5000, 5, 0, 0, 300, marked + 7, 1, 2000]
    chance = np.random.default_rng(len(name))
    texts = ["".join(chance.choice([*"ACGT"], size)) for size in sizes]
    engine, batch = engine_of("emulated"), Batch.from_bytes([text.encode() for text in texts])
    wanted = [tokenizer.encode(load(name), text, PLAIN).ids for text in texts]
    ids, offsets = engine.encode_ids(load(name), batch.data, batch.offsets)
    assert offsets.tolist() == [0, *np.cumsum([*map(len, wanted)]).tolist()]
    assert ids.tolist() == [token_id for row in wanted for token_id in row]


@pytest.mark.parametrize("device", DEVICES)
def test_a_tile_may_begin_with_letters_of_a_row_that_has_no_id_in_it(device):
    """As far before its first whole vector as can be: 4-mers of one byte, all 256 ids."""
    words = tuple("".join(word).encode() for word in itertools.product("ACGT", repeat=4))
    vocabulary = Vocabulary(words, Kmers(4, 0, 5))
    own_letters = constant("MOST_LETTERS") - constant("AROUND") - constant("BEHIND_TILE")
    sizes = [496] * 5 + [own_letters + 1 - 5 * 496, 100, 50]
    chance = np.random.default_rng(4)
    texts = ["".join(chance.choice([*"ACGT"], size)) for size in sizes]
    batch = Batch.from_bytes([text.encode() for text in texts])
    out = np.zeros(len(batch.data), np.uint8)
    offsets = encode_stream(engine_of(device), vocabulary, batch.data, batch.offsets, out)
    ids = [i for text in texts for i in tokenizer.encode(vocabulary, text, PLAIN).ids]
    assert (sum(sizes[:6]) - own_letters, sum(size - 3 for size in sizes[:6]) % 16) == (1, 15)
    assert (out[: len(ids)].tolist(), offsets[-1]) == (ids, len(ids))
