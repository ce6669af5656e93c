"""Added tokens that are spelled in the byte alphabet: every engine against `tokenizers`.

Its byte-level decoder reads all that it can in that alphabet: the added token "Ġfoo" is found where
a text holds these four letters, and is " foo" when it is decoded.
"""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from tokenizers import Tokenizer

from service.engines.base import Engine
from tests.support.each_engine import ENGINES, MARKS, make_engine
from tests.support.inputs.tokenizer_documents import BYTE_LEVEL, BYTES, added, document, encoded
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.model.byte_alphabet import added_token_bytes
from vocabularies.model.types import Bpe, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

MERGES = ["Ġ t", "h e", "Ġt he", "f o", "Ġ fo"]
LISTED = [*BYTES, *(pair.replace(" ", "") for pair in MERGES)]
CONTENTS = ["Ġfoo", "für", "a é b", "<|end|>", "é中", "ĠĠ"]  # And "Ġthe", which is listed, too.
DOCUMENT = document(
    {string: i for i, string in enumerate(LISTED)},
    MERGES,
    byte_level=True,
    decoder=BYTE_LEVEL,
    added_tokens=[
        added("Ġthe", LISTED.index("Ġthe"), special=False),
        *(added(c, len(LISTED) + i, special=i % 2 == 1) for i, c in enumerate(CONTENTS)),
    ],
)
PIECES = [*CONTENTS, "Ġthe", " the", "Ġ", " ", "foo", " foo", "é", "f", "über", "\n", "  "]
VOCABULARY = read_vocabulary({"tokenizer.json": encoded(DOCUMENT)})


@functools.cache
def library(plain: bool = False) -> Tokenizer:
    tokenizer = Tokenizer.from_str(encoded(DOCUMENT).decode())
    tokenizer.encode_special_tokens = plain
    return tokenizer


@functools.cache
def engine_of(name: str) -> Engine:
    return make_engine(name)


def random_texts(seed: int, count: int = 120) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(PIECES, k=rng.randrange(9))) for _ in range(count)]


each_engine = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS[name]) for name in ENGINES]
)


@each_engine
@pytest.mark.parametrize("skip", [False, True])
def test_ids_are_decoded_as_by_the_library(name, skip):
    engine, rng = engine_of(name), random.Random(5)
    residency = engine.load(VOCABULARY)
    assert residency.self_test.num_different == 0
    assert ("stands for other bytes" in residency.fallback_reason) == (name != "cpu")
    last = range(len(LISTED) - 8, len(VOCABULARY))
    rows = [rng.choices([*last, 32, 233, 10], k=rng.randrange(12)) for _ in range(200)]
    ids = np.array([i for row in rows for i in row], np.int64)
    decoded = engine.decode(
        VOCABULARY, ids, offsets_from_lengths(np.array([*map(len, rows)])), skip
    )
    for i, row in enumerate(rows):
        begin, end = decoded.offsets[i : i + 2]
        theirs = library().decode(row, skip_special_tokens=skip)
        assert decoded.data[begin:end].tobytes().decode(errors="replace") == theirs, row
        assert reference.decode(VOCABULARY, row, skip).decode(errors="replace") == theirs


@each_engine
@pytest.mark.parametrize("special", ["match", "plain"])
def test_texts_have_the_ids_of_the_library_and_the_spans_of_the_reference(name, special):
    texts = random_texts(3)
    options = EncodeOptions(spans=True, special=special)
    encoded_ = engine_of(name).encode(VOCABULARY, Batch(texts, options=options))
    assert encoded_.spans is not None
    for row, text in enumerate(texts):
        theirs = library(plain=special == "plain").encode(text, add_special_tokens=False).ids
        assert encoded_.row(row).tolist() == theirs, text
        begin, end = encoded_.offsets[row : row + 2]
        wanted = reference.encode(VOCABULARY, text, options)
        assert [(a, b) for a, b in encoded_.spans[begin:end].tolist()] == wanted.spans


def test_a_tokens_string_is_its_content_and_it_is_written_as_it_was_read():
    assert VOCABULARY.tokens[len(LISTED)] == b" foo"
    assert VOCABULARY.token_string(len(LISTED)) == "Ġfoo"
    assert read_vocabulary(write_vocabulary(VOCABULARY, "tokenizer.json")) == VOCABULARY


@pytest.mark.parametrize(
    ("content", "meant"), [("Ġa", b" a"), ("é", b"\xe9"), (" a", b" a"), ("é中", "é中".encode())]
)
def test_only_what_the_alphabet_has_as_a_whole_is_read_in_it(content, meant):
    assert added_token_bytes(content) == meant


@pytest.mark.parametrize("ignore_merges", [False, True])
def test_tokens_of_the_same_bytes_make_the_vocabulary_upstream(ignore_merges):
    """Merges make only "Ġthe", not the added token " the" with the same bytes."""
    tokens = [added("Ġthe", LISTED.index("Ġthe")), added(" the", len(LISTED))]
    content = DOCUMENT | {"added_tokens": tokens}
    content["model"] = DOCUMENT["model"] | {"ignore_merges": ignore_merges}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert isinstance(vocabulary.model, Upstream)
    assert "have the same bytes" in vocabulary.model.reason


def test_a_token_that_is_a_whole_pretoken_makes_the_vocabulary_upstream():
    """With merges ignored a vocabulary would take " foo" for it, which the library does not."""
    content = DOCUMENT | {"added_tokens": [added("Ġfoo", len(LISTED))]}
    content["model"] = DOCUMENT["model"] | {"ignore_merges": True}
    model = read_vocabulary({"tokenizer.json": encoded(content)}).model
    assert isinstance(model, Upstream)
    assert "could be taken for an ordinary one" in model.reason


def test_characters_stand_for_themselves_where_bytes_are_not_spelled():
    model = Bpe((), byte_level=False)
    with pytest.raises(ValueError, match="belongs to"):
        Vocabulary((b"a", b" a"), model, special_tokens=(SpecialToken("Ġa", 1),))


@pytest.mark.parametrize("step", ["Lowercase", "NFC"])
def test_a_token_that_the_normalizer_rewrites_is_decoded_by_the_library(step):
    """It writes "the" for the added token "The" where that is looked for in lower case."""
    tokens = [added("The", 256, normalized=True), added("e\u0301!", 257, normalized=True)]
    content = document(BYTES, [], byte_level=True, decoder=BYTE_LEVEL, added_tokens=tokens)
    content["normalizer"] = {"type": step}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert isinstance(vocabulary.model, Upstream)
    assert "decoded as that" in vocabulary.model.reason
    tokenizer = Tokenizer.from_str(encoded(content).decode())
    engine = engine_of("cpu")
    engine.load(vocabulary)
    texts = ["The the THE", "e\u0301! é!"]
    answered = engine.encode(vocabulary, Batch(texts))
    assert [answered.row(i).tolist() for i in range(2)] == [tokenizer.encode(t).ids for t in texts]
    decoded = engine.decode(vocabulary, np.array([256, 257]), np.array([0, 2]), False)
    assert decoded.data.tobytes().decode() == tokenizer.decode([256, 257], False)
