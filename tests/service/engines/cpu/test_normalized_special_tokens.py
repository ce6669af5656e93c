"""Special tokens that `tokenizers` finds in other words than their own are refused as well."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from service.engines.cpu.engine import CpuEngine
from tests.support.inputs.tokenizer_documents import added, document, encoded
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.formats import read_vocabulary
from vocabularies.model.types import Upstream

LOWERCASE = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
LOWERCASE |= {"strip_accents": None, "lowercase": True}
DOCUMENT = document(
    {},
    [],
    model={"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "a": 1, "<": 2}},
    normalizer=LOWERCASE,
    pre_tokenizer={"type": "Whitespace"},
    added_tokens=[
        added("[UNK]", 0),
        added("<mask>", 3, normalized=True, lstrip=True),
        added("<b>", 4, normalized=True, special=False),
    ],
)
REFUSED = {
    "a <MASK>": 2,
    "é a <Mask> a <mask>": 5,
    "<mask><MASK>": 0,
    "ÉÉ[UNK]": 4,
    "é [UNK]  <MASK>": 3,
    "é  <MASK> [UNK]": 4,
}
TAKEN = ["", "a < é zz", "<mas k>", "<B> a <b>", "[unk]", "< mask >"]


@pytest.fixture(scope="module")
def engine() -> CpuEngine:
    return CpuEngine()


@pytest.mark.parametrize("spans", [False, True])
def test_a_token_that_is_found_behind_the_normalizer_is_refused_with_its_place(engine, spans):
    vocabulary = read_vocabulary({"tokenizer.json": encoded(DOCUMENT)})
    assert isinstance(vocabulary.model, Upstream)
    library = Tokenizer.from_str(encoded(DOCUMENT).decode())
    texts = [*REFUSED, *TAKEN]
    options = EncodeOptions(special="refuse", spans=spans)
    answer = engine.encode(vocabulary, Batch(texts, options=options))
    assert set(answer.errors) == set(range(len(REFUSED)))
    for row, (text, place) in enumerate(REFUSED.items()):
        error = answer.errors[row]
        assert (error.code, error.where) == ("special_token_refused", f"byte {place}"), text
        assert not len(answer.row(row))
    for row, text in enumerate(texts[len(REFUSED) :], len(REFUSED)):
        assert answer.row(row).tolist() == library.encode(text).ids, text


def test_a_token_that_stands_there_as_text_too_still_parts_what_is_around_it(engine):
    """Where special tokens are left as text, its id is the same, and those behind it are others."""
    made = document(
        {"a": 0, "b": 1, "c": 2, "bc": 3},
        [],
        ignore_merges=True,
        normalizer=LOWERCASE,
        added_tokens=[added("a", 0, normalized=True)],
    )
    vocabulary = read_vocabulary({"tokenizer.json": encoded(made)})
    for text in ("abc", "Abc"):
        for special, wanted in (("match", [0, 3]), ("plain", [0, 1, 2]), ("refuse", [])):
            answer = engine.encode(
                vocabulary, Batch([text], options=EncodeOptions(special=special))
            )
            assert answer.row(0).tolist() == wanted
            assert bool(answer.errors) == (special == "refuse")
