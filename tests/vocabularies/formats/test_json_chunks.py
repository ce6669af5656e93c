"""JSON that is parsed in chunks has the value that `json` gives; what `json` refuses is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vocabularies.errors import VocabularyError
from vocabularies.formats import json_chunks, parsing

TEXTS = st.text(st.sampled_from('ab,"[]{}:\\ \n1é😀\ud83d'), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=40
)
LAYOUTS = st.sampled_from([(None, (",", ":")), (None, (", ", ": ")), (1, (",", " : "))])


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    """Split texts that are short, too."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(json_chunks, "CHUNK", 6)
        patches.setattr(json_chunks, "MIN_ELEMENTS", 1)
        patches.setattr(json_chunks, "MAX_FAILURES", 10_000)
        yield


def parse(text: str):
    return json_chunks.ChunkParser(text, json.JSONDecoder()).parse()


@given(VALUES, LAYOUTS, st.booleans())
@example([["a", "b"], [",", "],"], ['"', '",']] * 9, (None, (",", ":")), False)
@example({f"{i},": i for i in range(40)}, (1, (",", " : ")), True)
def test_every_document_has_its_value(value, layout, is_ascii):
    indent, separators = layout
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=is_ascii)
    assert repr(parse(text)) == repr(json.loads(text))  # With the order of keys.


@given(VALUES, LAYOUTS, st.data())
def test_what_json_refuses_is_refused(value, layout, data):
    text = json.dumps(value, indent=layout[0], separators=layout[1])
    place = data.draw(st.integers(0, len(text)))
    end = place + data.draw(st.integers(0, 1))
    text = (
        text[:place]
        + data.draw(st.sampled_from(["", ",", '"', "]", "}", "[", ":", "1"]))
        + text[end:]
    )
    try:
        parsed = parse(text)
    except (ValueError, RecursionError):
        return
    assert repr(parsed) == repr(json.loads(text))


@pytest.mark.parametrize(
    "text", ["[1,2,]", '{"a":1,}', "[,1]", "[1 2]", "[1]]", "", "[", '{"a" 1}', "{1:2}", "[1,\v2]"]
)
def test_faults_at_the_borders_of_elements(text):
    with pytest.raises((json_chunks.CannotSplit, json.JSONDecodeError)):
        parse(text)


def test_a_key_that_stands_twice_far_apart_is_refused():
    pairs = ",".join(f'"k{i % 30}": {i}' for i in range(40))
    with pytest.raises(VocabularyError, match="the key 'k0' twice"):
        parsing.parse_json(b"{%b}" % pairs.encode())


def test_after_many_failures_the_text_is_left_to_json(monkeypatch):
    monkeypatch.setattr(json_chunks, "MAX_FAILURES", 3)
    value = [",,,,,,,,"] * 30
    with pytest.raises(json_chunks.CannotSplit):
        parse(json.dumps([value, value]))
    assert parsing.parse_json(json.dumps([value, value]).encode()) == [value, value]
