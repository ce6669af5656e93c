"""A list that is taken out of a body: body and elements mean the same, or nothing is taken out."""

from __future__ import annotations

import struct

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core import json_elements
from service.core.json_elements import STANDING, find_list
from tests.support.compiled import extension
from tests.support.data_files import ROOT

DEEP = b'{"x":' + b"[" * 900 + b"]" * 900 + b"}"
texts = st.text(alphabet='a"\\{}[],:\n é\U0001f642', max_size=6)
values = st.recursive(
    texts | st.integers(-9, 9) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
bodies = st.dictionaries(texts | st.just("messages"), values, max_size=3)


@pytest.fixture(scope="module", autouse=True)
def built():
    own = json_elements.native
    json_elements.native = extension(ROOT / "service/core/json_elements.cpp", "_json_elements")
    yield
    json_elements.native = own


def read(body: bytes):
    """Read a body by its rest and its elements; None: that is not possible."""
    found = find_list(body, b"messages")
    if found is None:
        return None
    places = struct.unpack(f"{len(found.places) // 4}I", found.places)
    try:
        value = orjson.loads(found.rest)
        assert value["messages"] == orjson.loads(STANDING)
        elements = [
            orjson.loads(found.json[begin:end])
            for begin, end in zip(places[::2], places[1::2], strict=True)
        ]
    except orjson.JSONDecodeError:
        return None
    return value | {"messages": elements}


def spaced(value, spaces) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if spaces else 0)


@given(bodies, st.lists(st.dictionaries(texts, values, max_size=3), min_size=1), st.booleans())
def test_a_list_of_objects_is_found_wherever_it_stands(others, messages, spaces):
    body = others | {"messages": messages}
    has_escaped_key = any(orjson.dumps(key)[1:-1].count(b"\\") for key in body)
    assert read(spaced(body, spaces)) == (None if has_escaped_key else body)


@given(bodies, st.booleans(), st.data())
def test_damaged_bodies_are_never_taken_for_others(body, spaces, data):
    raw = bytearray(spaced(body | {"messages": [{"a": "b"}, body]}, spaces))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\xff", b"m"])
        )
    found = read(bytes(raw))
    if found is not None:
        assert found == orjson.loads(raw)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"messages":[]}',
        b'{"messages":{}}',
        b'{"messages":[1]}',
        b'{"messages":[{},1]}',
        b'{"messages":[{},]}',
        b'{"messages":[{}],}',
        b'{"messages":[{}]} x',
        b'{"messages":[{}],"messages":[{}]}',
        b'{"messages":[{}],"mess\\u0061ges":[{}]}',
        b'{"x":{"messages":[{}]}}',
        b'{"messages":[' + DEEP + b"]}",
        b"\xef\xbb\xbf" + b'{"messages":[{}]}',
    ],
)
def test_unusual_bodies_are_left_whole(body):
    assert find_list(body, b"messages") is None


def test_long_bodies_and_other_arguments():
    body = orjson.dumps({"messages": [{"content": 'x"\\' * 400_000}] * 2, "n": 1})
    assert read(body) == orjson.loads(body)
    with pytest.raises(TypeError, match="as bytes"):
        json_elements.native.find_elements(bytearray(body), b"messages")


def test_without_the_extension_nothing_is_taken_out(monkeypatch):
    monkeypatch.setattr(json_elements, "native", None)
    assert find_list(b'{"messages":[{}]}', b"messages") is None
