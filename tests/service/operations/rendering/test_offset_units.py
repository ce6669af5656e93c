"""Byte spans in code points and UTF-16 units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from service.engines.cpu.engine import CpuEngine
from service.operations.rendering.offset_units import convert_spans
from tests.support.inputs.tokenizer_documents import BYTES, document, encoded
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.formats import read_vocabulary
from vocabularies.model.types import Upstream

TEXT = st.text(st.sampled_from("aé中🙂\u0301 "), max_size=12)


def slow(begin: int, end: int, text: str, unit: str) -> tuple[int, int]:
    """Walk the characters: the first one touched, and the end of the last one touched."""
    position, byte, first, last = 0, 0, None, 0
    for character in text:
        width = len(character.encode())
        units = len(character.encode("utf-16-le")) // 2 if unit == "utf16" else 1
        if byte < end and byte + width > begin:
            first = position if first is None else first
            last = position + units
        if begin == end and byte <= begin < byte + width:
            first, last = position, position
        byte, position = byte + width, position + units
    return (position, position) if first is None else (first, last)


@pytest.mark.parametrize("unit", ["codepoints", "utf16"])
@given(text=TEXT, data=st.data())
def test_spans_equal_a_walk_over_the_characters(unit, text, data):
    size = len(text.encode())
    pairs = st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted)
    spans = data.draw(st.lists(pairs, max_size=5))
    got = convert_spans(np.array(spans, np.int64).reshape(-1, 2), text, unit)
    assert got.tolist() == [list(slow(begin, end, text, unit)) for begin, end in spans]


def test_both_bytes_of_one_character_span_the_whole_character():
    spans = np.array([[0, 1], [1, 2], [2, 6], [0, 0]])
    assert convert_spans(spans, "é🙂", "codepoints").tolist() == [[0, 1], [0, 1], [1, 2], [0, 0]]
    assert convert_spans(spans, "é🙂", "utf16").tolist() == [[0, 1], [0, 1], [1, 3], [0, 0]]
    assert convert_spans(spans, "é🙂", "bytes") is spans


def test_a_cut_on_the_left_changes_no_offsets():
    """tokenizers trims behind the cut, and takes the first id that is left for the text's first."""
    trimming = {"trim_offsets": True, "add_prefix_space": True}
    content = document(
        BYTES,
        [],
        byte_level=True,
        pre_tokenizer={"type": "ByteLevel", "use_regex": True} | trimming,
        post_processor={"type": "ByteLevel", "use_regex": True} | trimming,
    )
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert isinstance(vocabulary.model, Upstream)
    library, engine = Tokenizer.from_str(encoded(content).decode()), CpuEngine()
    whole = library.encode("a b").offsets
    options = EncodeOptions(max_length=2, truncation_side="left", spans=True)
    answer = engine.encode(vocabulary, Batch(["a b"], options=options))
    assert answer.spans is not None
    assert [tuple(span) for span in answer.spans.tolist()] == whole[-2:] == [(2, 2), (2, 3)]
    library.enable_truncation(2, direction="left")
    assert library.encode("a b").ids == answer.ids.tolist()
    assert library.encode("a b").offsets != whole[-2:]
