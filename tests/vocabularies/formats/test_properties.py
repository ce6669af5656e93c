"""Random small vocabularies on random texts: a written file is read as the same vocabulary."""

from __future__ import annotations

import json

import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.support.inputs.tokenizer_documents import bpe_documents, encoded, rank_file, rank_lists
from vocabularies.batch.batch import EncodeOptions
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.formats.tiktoken.rank_merges import derive_merges
from vocabularies.model.types import Upstream
from vocabularies.preprocessing.pretokenizers import PRETOKENIZERS
from vocabularies.reference.tokenizer import encode


def texts(letters: str) -> st.SearchStrategy[str]:
    pieces = [*letters, "<s>", "[UNK]", "ab", " ", "q"]
    return st.lists(st.sampled_from(pieces), max_size=40).map("".join)


@settings(max_examples=150)
@given(drawn=bpe_documents(), data=st.data())
def test_the_written_tokenizer_json_gives_the_ids_of_the_one_read(drawn, data):
    content, letters = drawn
    original = Tokenizer.from_str(json.dumps(content))
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    written = Tokenizer.from_str(tokenizer_json(vocabulary))
    for text in data.draw(st.lists(texts(letters), min_size=3, max_size=8)):
        for plain in (False, True):
            original.encode_special_tokens = written.encode_special_tokens = plain
            assert written.encode(text).ids == original.encode(text).ids, (text, plain)
            if not isinstance(vocabulary.model, Upstream):
                options = EncodeOptions(special="plain" if plain else "match")
                assert encode(vocabulary, text, options).ids == original.encode(text).ids


@settings(max_examples=150)
@given(drawn=bpe_documents())
def test_a_vocabulary_comes_back_from_every_format_that_takes_it(drawn):
    vocabulary = read_vocabulary({"tokenizer.json": encoded(drawn[0])})
    for format in ("tokenizer.json", "canonical"):
        assert read_vocabulary(write_vocabulary(vocabulary, format)) == vocabulary


@settings(max_examples=200)
@given(tokens=rank_lists(), data=st.data())
def test_the_merges_derived_from_ranks_give_the_ids_of_tiktoken(tokens, data):
    ranks = {token: rank for rank, token in enumerate(tokens)}
    rule = data.draw(st.sampled_from(["gpt2", "whitespace", "none"]))
    pattern = PRETOKENIZERS[rule].tiktoken_pattern
    # A special token that is one pretoken could be taken for an ordinary one, and is refused.
    special = {} if rule == "none" else {"<|end|>": 400}
    upstream = tiktoken.Encoding(
        "random", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special
    )
    files = {"random.tiktoken": rank_file(tokens)}
    vocabulary = read_vocabulary(files, pretokenizer=rule, special_tokens=special)
    _, unreachable = derive_merges(ranks)
    assert vocabulary.model.ignore_merges == bool(unreachable)
    written = Tokenizer.from_str(tokenizer_json(vocabulary))
    letters = b"".join(tokens[256:]).decode(errors="replace")[:40] + "ab "
    for text in data.draw(st.lists(texts(letters), min_size=3, max_size=8)):
        expected = upstream.encode_ordinary(text)
        assert encode(vocabulary, text, EncodeOptions(special="plain")).ids == expected
        written.encode_special_tokens = True
        assert written.encode(text).ids == expected
        text += "".join(special) + text
        written.encode_special_tokens = False
        assert written.encode(text).ids == upstream.encode(text, allowed_special="all")


@settings(max_examples=100)
@given(tokens=rank_lists())
def test_a_rank_file_is_written_as_it_was_read(tokens):
    content = rank_file(tokens)
    vocabulary = read_vocabulary({"random.tiktoken": content}, pretokenizer="none")
    assert write_vocabulary(vocabulary, "tiktoken") == {"vocabulary.tiktoken": content}


@settings(max_examples=100)
@given(data=st.binary(max_size=200), name=st.sampled_from(["x", "tokenizer.json", "a.tiktoken"]))
def test_random_bytes_are_refused_or_read_but_never_crash(data, name):
    try:
        read_vocabulary({name: data})
    except VocabularyError as error:
        assert error.findings and all(finding.where for finding in error.findings)


@settings(max_examples=150)
@given(data=st.data())
def test_a_cut_or_changed_file_is_refused_or_read_but_never_crashes(data):
    content, _ = data.draw(bpe_documents())
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    format = data.draw(st.sampled_from(["tokenizer.json", "canonical"]))
    [(name, whole)] = write_vocabulary(vocabulary, format).items()
    place = data.draw(st.integers(0, len(whole) - 1))
    patch = data.draw(st.sampled_from([b"", b"9", b"null", b"[", b'"', b"\xff", b"-1,", b"{}"]))
    end = data.draw(st.sampled_from([place, place + 1, place + 5, len(whole)]))
    try:
        read_vocabulary({name: whole[:place] + patch + whole[end:]})
    except VocabularyError as error:
        assert error.findings and all(finding.where for finding in error.findings)
