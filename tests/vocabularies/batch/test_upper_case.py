"""Upper case: only a to z change, only in the rows whose options say so, and nothing is copied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, EncodeOptions
from vocabularies.batch.upper_case import make_upper_case, upper_case_bytes, upper_case_text

UPPER = EncodeOptions(uppercase=True, spans=True)


@given(st.binary())
def test_bytes_are_those_of_python(data: bytes) -> None:
    assert upper_case_bytes(np.frombuffer(data, np.uint8)).tobytes() == data.upper()


@given(st.text(st.characters(codec=None)))
def test_a_text_keeps_its_length(text: str) -> None:
    upper = upper_case_text(text)
    assert len(upper) == len(text)
    pairs = zip(text, upper, strict=True)
    assert all(b == (a.upper() if "a" <= a <= "z" else a) for a, b in pairs)


@given(st.lists(st.tuples(st.text("aZé[n]", max_size=8), st.booleans()), max_size=6))
def test_rows_change_that_request_it(rows: list[tuple[str, bool]]) -> None:
    options = [UPPER if is_upper else DEFAULT_OPTIONS for _, is_upper in rows]
    expected = [(upper_case_text(text) if is_upper else text).encode() for text, is_upper in rows]
    texts = [text for text, _ in rows]
    joined = Batch.from_bytes([text.encode() for text in texts])
    before = joined.data.tobytes()
    for batch in (Batch(texts), joined):
        batch.id_dtype = np.uint16
        made = make_upper_case(batch.with_options(options))
        assert [made.row_bytes(row) for row in range(len(made))] == expected
        assert made.options == [replace(each, uppercase=False) for each in options]
        assert (made.id_dtype, made.has_texts) == (np.uint16, batch.has_texts)
    assert joined.data.tobytes() == before


def test_a_batch_that_needs_nothing_is_itself() -> None:
    for options in (DEFAULT_OPTIONS, [DEFAULT_OPTIONS, EncodeOptions(spans=True)]):
        batch = Batch(["a", "b"], options=options)
        assert make_upper_case(batch) is batch
