"""Documents of lines: the C++ extension and Python give the same, and what json.loads gives."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.corpus.documents import Documents
from service.corpus.reading import lines
from service.corpus.reading.line_blocks import LineBlock

native = pytest.importorskip("service.corpus._corpus")
PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(PLAIN, values, max_size=3),
    max_leaves=6,
)
FAULTS = (
    b"",
    b"   \r",
    b"[1, 2]",
    b'"text"',
    b"null",
    b"{}",
    b'{"text": null}',
    b'{"text": 7}',
    b'{"text": "a"} x',
    b'{"text": "a",}',
    b'{"text": "a"',
    b'{"text": "a\tb"}',
    b'{"text": "\\x41"}',
    b'{"text": "\\ud83d"}',
    b'{"text": "\\ude42\\ud83d"}',
    b'{"text": "\\ud83d\\u0041"}',
    b'{"text": "\\u12g4"}',
    b'{"text": "\\',
    b'{"text": "a", "n": 01}',
    b'{"text": "a", "n": NaN}',
    b'{"text": "a", "n": -}',
    b'{"text": "a", "n": 1.}',
    b'{"text": "a", "n": tru}',
    b'{"other": "a"}',
    b"not json",
)
GOOD = (
    (b'{"text": "a", "text": "b"}', "b"),
    (b'{"\\u0074ext": "key by an escape"}', "key by an escape"),
    (b'{"text": "\\ud83d\\ude42 \\u00e9 \\u4e2d \\/ \\" \\\\ \\b\\f\\n\\r\\t"}', None),
    (b'{"a": [1, {"text": "inner"}], "text": "outer"}', "outer"),
    (b' \t{ "text" : "spaces" , "n" : -1.5e+3 } \r', "spaces"),
    (b'{"text": ""}', ""),
    (('{"text": "' + "é🙂" * 20 + '"}').encode(), "é🙂" * 20),
)


def block(data: bytes, begin: int = 0) -> LineBlock:
    return LineBlock(np.frombuffer(bytearray(data), np.uint8), begin, begin + len(data), len(data))


def texts(documents: Documents) -> list[bytes]:
    data, offsets = documents.data.tobytes(), documents.offsets.tolist()
    return [data[begin:end] for begin, end in pairwise(offsets)]


def both(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Documents:
    """Read a block by the extension, and check that Python gives the same."""
    found = lines.json_documents(block(data, 1000), "text")
    with monkeypatch.context() as patch:
        patch.setattr(lines, "extract", lines.extract_by_python)
        expected = lines.json_documents(block(data, 1000), "text")
    assert texts(found) == texts(expected)
    assert found.places.tolist() == expected.places.tolist()
    assert found.rejects == expected.rejects
    return found


@pytest.mark.parametrize("line", FAULTS)
def test_a_faulty_line_is_rejected_alone(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'{"text": "before"}\n' + line + b'\n{"text": "behind"}'
    found = both(data, monkeypatch)
    assert texts(found) == [b"before", b"behind"]
    assert [reject.place for reject in found.rejects] == ([1019] if line.strip() else [])


@pytest.mark.parametrize(("line", "text"), GOOD)
def test_texts_are_those_of_json(
    line: bytes, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.loads(line)["text"] if text is None else text
    found = both(line + b"\n" + line, monkeypatch)
    assert texts(found) == [text.encode()] * 2
    assert found.places.tolist() == [1000, 1000 + len(line) + 1]


@settings(max_examples=400)
@given(st.lists(st.tuples(PLAIN, VALUES, st.booleans(), st.booleans()), max_size=5))
def test_random_objects(rows: list[tuple[str, Any, bool, bool]]) -> None:
    written = []
    for text, value, is_ascii, is_first in rows:
        fields = {"text": text, "other": value} if is_first else {"other": value, "text": text}
        written.append(json.dumps(fields, ensure_ascii=is_ascii))
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = both("\n".join(written).encode(), monkeypatch)
    assert texts(found) == [text.encode() for text, *_ in rows]
    assert found.rejects == []


@settings(max_examples=400)
@given(st.binary(max_size=60), st.integers(0, 60))
def test_random_damage(damage: bytes, place: int) -> None:
    line = '{"text": "é \\n \\u00e9 \\ud83d\\ude42", "n": [1.5e3, {"a": true}]}'.encode()
    with pytest.MonkeyPatch.context() as monkeypatch:
        both(line[:place] + damage + line[place + len(damage) :], monkeypatch)


@pytest.mark.parametrize("find", [lines.split_by_python, native.split])
def test_lines_are_documents_without_their_ends(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "split", find)
    found = lines.line_documents(block(b"one\r\n\n  \n two \nthree"))
    assert texts(found) == [b"one", b" two ", b"three"]
    assert found.places.tolist() == [0, 9, 15]


def test_deep_objects_are_rejected_and_do_not_end_the_process() -> None:
    deep = b'{"text": "a", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (reject,) = lines.json_documents(block(deep), "text").rejects
    assert reject.code == "invalid_json"


@pytest.mark.parametrize("inside", [b"", b"1", b'"]\\""', b'{"a": 1}'])
@pytest.mark.parametrize("begin", [b'{"text": "[{", "n": ', b'{"n": [[]], "text": ', b""])
def test_the_extension_and_python_refuse_the_same_depth(
    begin: bytes, inside: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for depth in range(509, 516):
        both(begin + b"[" * depth + inside + b"]" * depth + b"}" * bool(begin), monkeypatch)
