"""Strings joined by the extension and by Python: the same bytes, offsets and refusals."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.compiled import extension
from tests.support.data_files import ROOT
from vocabularies.batch import batch
from vocabularies.batch.batch import (
    LARGE_BYTES,
    Batch,
    join_in_python,
    join_texts,
    utf8_size,
)

SOURCE = ROOT / "vocabularies/batch/string_join.cpp"
TEXTS = st.lists(st.text(max_size=200) | st.text("ACGT", max_size=200), max_size=40)


@pytest.fixture(scope="module")
def built():
    return extension(SOURCE, "_string_join")


@given(texts=TEXTS, as_tuple=st.booleans())
def test_both_give_the_same(built, texts, as_tuple):
    given_texts = tuple(texts) if as_tuple else texts
    data, offsets = join_texts(given_texts, by=built)
    expected, expected_offsets = join_in_python(given_texts)
    assert data.tobytes() == expected.tobytes() == "".join(texts).encode()
    assert offsets.tolist() == expected_offsets.tolist()


@pytest.mark.parametrize("texts", [["a", "\ud800"], ["\udfff" * 100, "b" * 100]])
def test_both_refuse_what_is_no_unicode(built, texts):
    for by in (built, None):
        with pytest.raises(UnicodeEncodeError):
            join_texts(texts, by=by)


@given(texts=TEXTS, most=st.integers(0, 300))
def test_bytes_are_counted_where_there_are_not_too_many_characters(built, texts, most):
    size = len("".join(texts).encode()) if sum(map(len, texts)) <= most else -1
    assert utf8_size(texts, most, built) == utf8_size(texts, most, None) == size


def test_what_is_no_list_of_strings_is_not_counted(built):
    for wrong in (({"a"}, 1), ([1], 1), (["a"],), (["a"], "1"), ()):
        with pytest.raises(TypeError):
            built.utf8_size(*wrong)
    for by in (built, None):
        with pytest.raises(UnicodeEncodeError):
            utf8_size(["a", "\ud800"], 9, by)


def test_many_bytes_go_where_the_caller_says(built):
    asked = []

    def memory(num_bytes):
        asked.append(np.empty(num_bytes, np.uint8))
        return asked[-1]

    texts = ["ACGT" * 500] * (LARGE_BYTES // 2000 + 1)
    assert join_texts(texts, memory, built)[0] is asked[0]
    assert asked[0].tobytes() == "".join(texts).encode()
    assert join_texts(texts[:1], memory, built)[0].tobytes() == texts[0].encode()
    assert len(asked) == 1
    assert join_texts(texts, lambda _: None, built)[0].tobytes() == asked[0].tobytes()


def test_a_batch_is_joined_once_in_the_callers_memory(built, monkeypatch):
    monkeypatch.setattr(join_texts, "__defaults__", (None, built, None))
    batch, memory = Batch(["ACGT" * LARGE_BYTES]), np.empty(4 * LARGE_BYTES, np.uint8)
    batch.join_in(lambda _: memory)
    batch.join_in(lambda _: None)
    assert batch.data is memory
    assert batch.row_bytes(0) == memory.tobytes()


@pytest.mark.parametrize("kind", [list, tuple])
def test_hold_keeps_and_measures_texts_in_one_pass(built, kind):
    texts = kind(["ab", "", "naïve", "北京" * 400, "c"] * 20)
    offsets, own = np.zeros(101, np.int64), np.zeros(101, np.int64)
    held = built.hold(texts, offsets)
    assert held == tuple(texts) and (held is texts) == (kind is tuple)
    assert built.measure(texts, own) == own[-1]
    assert offsets.tolist() == own.tolist() == join_in_python(texts)[1].tolist()
    for wrong in ("\udc80", b"ab", None):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            built.hold(kind(["ab", wrong, "c"]), np.zeros(4, np.int64))
    del held
    counts = [sys.getrefcount(texts[2])]
    for _ in range(3):
        built.hold(texts, offsets)
        counts.append(sys.getrefcount(texts[2]))
    assert len(set(counts)) == 1


def test_wrong_arguments_are_refused_and_nothing_is_written_beyond_the_end(built):
    offsets, out = np.zeros(3, np.int64), np.zeros(4, np.uint8)
    assert built.measure(["ab", "c"], offsets) == 3
    for texts in (["ab", "cd"], ["abc", ""], ["ab", "c" * 900], ["é", "cc"]):
        with pytest.raises(ValueError, match="not those that were measured"):
            built.copy(texts, offsets, out)
    with pytest.raises(ValueError, match="not those that were measured"):
        built.copy(["ab", "c"], offsets, out[:2])
    with pytest.raises(ValueError, match="offsets"):
        built.copy(["ab"], offsets, out)
    with pytest.raises(ValueError, match="offsets"):
        built.measure(["ab", "c"], offsets[:2])
    with pytest.raises(ValueError, match="offsets"):
        built.hold(["ab", "c"], offsets[:2])
    for wrong in (("ab", offsets), ({"ab", "c"}, offsets), ([1], np.zeros(2, np.int64)), (["a"],)):
        with pytest.raises(TypeError):
            built.measure(*wrong)
        with pytest.raises(TypeError):
            built.hold(*wrong)
    with pytest.raises((ValueError, BufferError)):
        built.measure(["a"], bytes(16))
    assert out.tolist() in ([0] * 4, [97, 98, 0, 0], [97, 98, 99, 0])


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("letters", [1, 100, 4000])
def test_a_row_that_is_no_text_is_named(built, own, letters):
    texts, by = ["a" * letters] * 300, built if own else None
    for wrong, error, message in (
        ("é\udc80", UnicodeEncodeError, r"surrogates not allowed \(row 300\)"),
        (b"a", TypeError, "row 300 is a bytes; texts are str"),
        (None, TypeError, "row 300 is a NoneType"),
    ):
        with pytest.raises(error, match=message):
            join_texts([*texts, wrong], by=by)  # type: ignore[list-item]


def test_what_is_used_says_so():
    assert batch.JOINED_BY == ("Python" if batch.native is None else "C++")
