"""Uploaded patterns that Python's `re` cannot read, or whose compilation took all memory."""

from __future__ import annotations

import tracemalloc

import pytest
from tokenizers import Tokenizer

from service.engines.cpu.engine import CpuEngine
from tests.support.inputs.tokenizer_documents import document, encoded
from vocabularies.batch.batch import Batch
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.model.types import Upstream
from vocabularies.preprocessing.class_patterns import MAX_PATTERN, compile_patterns, fingerprint
from vocabularies.preprocessing.normalizers import compile_replacement

UNREAD = [
    "a{5,3}",  # Oniguruma: three to five, possessive.
    "a{4294967296}",
    "(" * 40 + "a" + ")" * 40,
    "[z-a]",
    "a" * (MAX_PATTERN + 1),
]


def replacing(pattern: str) -> dict:
    step = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "b"}
    return document({"a": 0, "b": 1}, [], normalizer=step)


@pytest.mark.parametrize("pattern", UNREAD, ids=lambda pattern: pattern[:9])
def test_a_pattern_that_re_does_not_read_is_no_rule_of_ours(pattern):
    with pytest.raises(ValueError, match=r"re cannot|ends before|at most|nested"):
        compile_replacement(pattern)
    with pytest.raises(ValueError, match=r"re cannot|ends before|at most|nested"):
        compile_patterns((pattern,), "onig")


@pytest.mark.parametrize("pattern", UNREAD[:3] + UNREAD[-1:], ids=lambda pattern: pattern[:9])
def test_the_library_computes_a_file_with_such_a_pattern_or_refuses_it(pattern):
    content = encoded(replacing(pattern))
    vocabulary = read_vocabulary({"tokenizer.json": content})
    assert isinstance(vocabulary.model, Upstream)
    try:
        library = Tokenizer.from_str(content.decode())
    except Exception:
        with pytest.raises(VocabularyError, match="cannot"):
            CpuEngine().load(vocabulary)
        return
    texts = ["a", "aaaaaab", "b" + "a" * 9, "a" * (MAX_PATTERN + 2)]
    answer = CpuEngine().encode(vocabulary, Batch(texts))
    for row, text in enumerate(texts):
        assert answer.row(row).tolist() == library.encode(text).ids


def test_a_range_that_ends_before_it_begins_is_refused_as_the_library_refuses_it():
    vocabulary = read_vocabulary({"tokenizer.json": encoded(replacing("[z-a]"))})
    with pytest.raises(VocabularyError, match="empty range"):
        CpuEngine().load(vocabulary)


def test_a_long_pattern_takes_no_memory_to_look_at():
    """60 kB of an upload, 20,000 letters, took 5.4 GiB and 22 seconds."""
    letters = "".join(map(chr, range(0x100, 0x100 + 20_000)))
    splitting = {"type": "Split", "behavior": "Isolated", "invert": False}
    for pattern in (letters, f"[{letters}]"):
        rule = splitting | {"pattern": {"Regex": pattern}}
        for content in (replacing(pattern), document({"a": 0}, [], pre_tokenizer=rule)):
            file = {"tokenizer.json": encoded(content)}
            tracemalloc.start()
            try:
                assert isinstance(read_vocabulary(file).model, Upstream)
                assert tracemalloc.get_traced_memory()[1] < 32 << 20
            finally:
                tracemalloc.stop()
    with pytest.raises(ValueError, match="at most"):
        fingerprint(letters, "onig")


def test_the_letters_of_a_set_take_memory_for_one_of_them():
    letters = "".join(map(chr, range(0x100, 0x100 + MAX_PATTERN - 2)))
    tracemalloc.start()
    try:
        compile_replacement(f"[{letters}]")
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
