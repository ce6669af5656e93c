"""fastokens in the spelling it knows by heart gives the ids of the rule that was asked for."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import sleep

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engines.cpu.bpe import fastokens_encoder, tokenizers_encoder
from service.engines.cpu.bpe.fastokens_encoder import FastokensEncoder
from service.engines.cpu.bpe.fastokens_quirks import spelling
from service.engines.cpu.bpe.fastokens_quirks.cl100k_trailing_whitespace import BLANKS, LINE_BREAKS
from service.engines.cpu.bpe.library_threads import has_library_threads
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
from service.engines.cpu.engine import CpuEngine
from service.engines.encoder import ReferenceEncoder
from tests.support.data_files import data_bytes, data_json
from tests.support.waiting import wait_until
from vocabularies import builtin
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.formats import describe_ignored, read_vocabulary
from vocabularies.formats.huggingface import reader
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe, Normalizer, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import find_pretokenizer
from vocabularies.reference import tokenizer

WHITE_SPACE = [" ", "\n", "\r", "\t", "\v", "\x85", "\xa0", "\u2028", "\u3000"]
PARTS = [*WHITE_SPACE, " ", "\n", " ", "\n", "a", "!", "1", "<m>", "<p> ", "'\u017f", "\u180e"]
TEXTS = st.lists(st.sampled_from(PARTS)).map("".join)


def encoder_of(vocabulary: Vocabulary) -> FastokensEncoder:
    return FastokensEncoder(vocabulary, token_table(vocabulary))


def white_space_vocabulary(content: str = "<m>", **special: bool) -> Vocabulary:
    """Bytes, and merges that show every way to cut white space."""
    tokens = [bytes([byte]) for byte in range(256)]
    merges = []
    for pair in ("\n ", " \n", "\n\n", "  ", "\r\n", "\n\t", "! ", "!\n", " a"):
        merges.append((ord(pair[0]), ord(pair[1])))
        tokens.append(pair.encode())
    for left, right in (("\n\n", " "), ("  ", "\n"), ("\n ", "\n "), (" \n", " ")):
        merges.append((tokens.index(left.encode()), tokens.index(right.encode())))
        tokens.append((left + right).encode())
    mark = SpecialToken(content, len(tokens), **special)
    unmatched = SpecialToken("<u>", len(tokens) + 1, matched=False)
    tokens += [content.encode(), b"<u>"]
    return Vocabulary(tuple(tokens), Bpe(tuple(merges)), (mark, unmatched), pretokenizer="cl100k")


BASE = white_space_vocabulary()
VOCABULARIES = {
    "base": BASE,
    "lstrip": white_space_vocabulary(lstrip=True),
    "rstrip": white_space_vocabulary(rstrip=True),
    "not special": white_space_vocabulary(special=False),
    "not matched": white_space_vocabulary(matched=False),
    "normalized": white_space_vocabulary(normalized=True),
    "ends in a blank": white_space_vocabulary("<p> "),
    "no special tokens": replace(BASE, special_tokens=()),
    "whole tokens first": replace(BASE, model=replace(BASE.model, ignore_merges=True)),
}
ENCODERS = {name: encoder_of(vocabulary) for name, vocabulary in VOCABULARIES.items()}


@settings(max_examples=600)
@given(
    name=st.sampled_from([*VOCABULARIES]),
    texts=st.lists(TEXTS, max_size=5),
    mode=st.sampled_from(["match", "plain", "refuse"]),
    spans=st.booleans(),
)
def test_white_space_is_cut_as_cl100k_cuts_it(name, texts, mode, spans):
    options = EncodeOptions(False, mode, spans=spans)
    got = ENCODERS[name].encode(Batch(texts), options)
    right = ReferenceEncoder(VOCABULARIES[name]).encode(Batch(texts), options)
    assert got.errors == right.errors
    assert got.offsets.tolist() == right.offsets.tolist()
    assert got.ids.tolist() == right.ids.tolist()
    if spans:
        assert got.spans.tolist() == right.spans.tolist()


def test_only_a_special_token_that_ends_in_white_space_forbids_the_faster_spelling():
    slow = {name for name, encoder in ENCODERS.items() if encoder.tails is None}
    assert slow == {"ends in a blank"}


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("a\n ", "\n "),
        ("a \r\u3000", " \r\u3000"),
        ("!\n\n \r ", " \r "),  # The line breaks belong to the sign's pretoken.
        ("é1\n\n ", "\n\n "),
        (" \n ", " \n "),
        ("!\n ", None),
        ("a\n", None),
        ("a ", None),
        ("a\n b", None),
        ("a\n<m>b", None),
        ("", None),
    ],
)
def test_a_tail_is_cut_off_only_where_the_rules_differ(text, tail):
    begins, unsure = ENCODERS["base"].tails.find(["", text])
    assert begins == ({} if tail is None else {1: len(text) - len(tail)})
    assert not unsure


@pytest.mark.parametrize(
    ("text", "is_slow"),
    [
        ("a \n\t<m>b", True),
        ("<m>\n ", True),
        ("\u180e", True),
        ("'\u017f", True),
        ("a <m>b", False),
        ("a\n<m>\nb\u017f\n ", False),
    ],
)
def test_only_rows_that_may_differ_go_the_slow_way(monkeypatch, text, is_slow):
    encoder, seen = ENCODERS["base"], []
    encode = encoder.reference.encode
    monkeypatch.setattr(
        encoder.reference, "encode", lambda batch, options: seen.append(1) or encode(batch, options)
    )
    encoder.content(Batch([text]), False)
    assert bool(seen) == is_slow


def test_many_rows_of_every_kind_in_one_batch():
    texts = ["a\n ", "<m>", "", "!\n \n ", "'\u017f\n ", "a\n <m>\n ", "b", "\n " * 3] * 3
    for mode in ("match", "plain", "refuse"):
        options = EncodeOptions(False, mode, spans=True)
        got = ENCODERS["base"].encode(Batch(texts), options)
        right = ReferenceEncoder(BASE).encode(Batch(texts), options)
        assert got.ids.tolist() == right.ids.tolist()
        assert got.offsets.tolist() == right.offsets.tolist()
        assert got.errors == right.errors


def test_bytes_that_are_not_utf8_are_refused_beside_tails():
    batch = Batch.from_bytes([b"a\n ", b"\xff\n ", b"a\n "])
    content = ENCODERS["base"].content(batch, False)
    assert content.offsets.tolist() == [0, 2, 2, 4]
    assert content.errors[1].where == "byte 0"


LONG = "x \u180e y\n" * (fastokens_encoder.MAX_REFERENCE_BYTES // 7)


def test_a_long_text_that_fastokens_may_not_encode_is_encoded_by_a_compared_library():
    encoder = encoder_of(builtin.load("gpt2"))
    assert not encoder.tokenizers
    content = encoder.content(Batch([LONG, "short"]), False)
    assert encoder.tokenizers
    right = ReferenceEncoder(builtin.load("gpt2")).encode(Batch([LONG, "short"]), EncodeOptions())
    assert content.ids.tolist() == right.ids.tolist()


def test_a_library_that_differs_is_not_used(monkeypatch, caplog):
    def differs(self, batch, plain, with_spans):
        content = ReferenceEncoder(self.vocabulary).encode(batch, EncodeOptions())
        content.ids += 1
        return content

    monkeypatch.setattr(TokenizersEncoder, "library_content", differs)
    encoder = encoder_of(BASE)
    content = encoder.content(Batch([LONG]), False)
    right = ReferenceEncoder(BASE).encode(Batch([LONG]), EncodeOptions())
    assert content.ids.tolist() == right.ids.tolist()
    assert "Self-test of" in caplog.text


@pytest.mark.slow
def test_deepseek_is_written_with_the_patterns_that_were_published():
    published = data_json("vocab/deepseek_v3/tokenizer.json.xz")
    vocabulary = read_vocabulary({"tokenizer.json": json.dumps(published).encode()})
    text = spelling.respell(tokenizer_json(vocabulary), "deepseek_v3", "deepseek_v3")
    steps = [
        document["pre_tokenizer"]["pretokenizers"] for document in (published, json.loads(text))
    ]
    assert steps[0][:3] == steps[1][:3]
    assert [step["type"] for step in steps[1]] == [step["type"] for step in steps[0]]


def test_real_texts_cut_inside_white_space_get_the_ids_of_tiktoken():
    vocabulary = builtin.load("cl100k_base")
    special = {token.content: token.id for token in vocabulary.special_tokens}
    ranks = {token: i for i, token in enumerate(vocabulary.tokens) if token is not None}
    ranks = {token: i for token, i in ranks.items() if i not in special.values()}
    pattern = find_pretokenizer("cl100k").tiktoken_pattern
    library = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    text = data_bytes("text/code_python_stdlib.txt").decode()
    chance = np.random.default_rng(0)
    texts = []
    for place in chance.integers(0, len(text), 3000).tolist():
        part = text[max(0, place - 100) : place].rstrip(LINE_BREAKS + BLANKS)
        texts.append(part + "".join(chance.choice([*WHITE_SPACE], 4)))
    content = encoder_of(vocabulary).content(Batch(texts), False)
    right = [library.encode_ordinary(each) for each in texts]
    assert content.ids.tolist() == [token_id for row in right for token_id in row]
    assert np.diff(content.offsets).tolist() == [*map(len, right)]


def test_it_takes_vocabularies_with_an_empty_token_and_without_bytes_that_no_text_has():
    base = replace(BASE, pretokenizer="gpt2")
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}
    tokens = [None if i in never else token for i, token in enumerate(base.tokens)]
    empty = SpecialToken("", len(tokens), special=False, matched=False)
    special = (*base.special_tokens, empty)
    vocabulary = replace(base, tokens=(*tokens, b""), special_tokens=special)
    texts = ["a <m> b\n\n", "\U0010ffff\u00ff\u07ff", "<u>"]
    engine = CpuEngine()
    residency = engine.load(vocabulary)
    assert residency.encoder.startswith("fastokens"), residency.fallback_reason
    batch = Batch(texts, options=EncodeOptions(spans=True))
    got = engine.encode(vocabulary, batch)
    for row, text in enumerate(texts):
        right = tokenizer.encode(vocabulary, text)
        begin, end = got.offsets[row : row + 2]
        assert got.row(row).tolist() == right.ids
        assert [*map(tuple, got.spans[begin:end].tolist())] == right.spans


def test_begin_and_end_tokens_of_roberta_do_not_keep_it_away():
    mark, end = BASE.special_tokens
    roles = {"cls": mark.id, "sep": end.id}
    vocabulary = replace(BASE, prefix=(mark.id,), suffix=(end.id,), roles=roles)
    engine = CpuEngine()
    assert engine.load(vocabulary).encoder.startswith("fastokens")
    text = "a <m> b\n\n"
    assert engine.encode(vocabulary, Batch([text])).ids.tolist() == (
        tokenizer.encode(vocabulary, text).ids
    )


def library_wakes() -> int:
    """How often the library's threads have gone to sleep again."""
    wakes = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # A thread of others ended.
            if (task / "comm").read_text().startswith("fastokens"):
                fields = (task / "status").read_text().split("voluntary_ctxt_switches:")
                wakes += int(fields[1].split()[0])
    return wakes


@pytest.mark.skipif(not has_library_threads(), reason="the library has no threads on one core")
def test_a_small_batch_wakes_no_thread_of_the_library(monkeypatch):
    encoder = encoder_of(builtin.load("gpt2"))
    batch = Batch([" some words", " and others"] * 20)  # Such texts are not joined.

    def wakes() -> int:
        before = library_wakes()
        for _ in range(20):
            encoder.content(batch, False)
            sleep(0.001)  # They look for more for a while before they sleep.
        return library_wakes() - before

    monkeypatch.setattr(fastokens_encoder, "MIN_THREADED_CHARACTERS", 0)
    wait_until(wakes, "a wake of the library's threads")
    monkeypatch.undo()
    wait_until(lambda: not wakes(), "their sleep")  # One may yet be on its way to it.


@given(st.lists(TEXTS | st.sampled_from(["", "<m>", "naïve ✓ \U0001f600", "a" * 900]), min_size=2))
@settings(deadline=None, max_examples=60)
def test_texts_one_after_the_other_and_shared_by_threads_have_the_same_ids(texts):
    fast = encoder_of(BASE).fast
    for plain in (False, True):
        one, both = (
            fastokens_encoder._encode_one_by_one(fast, texts, plain),
            fast.encode_batch_flat(texts, False, plain),
        )
        assert one.ids.tobytes() == both[0]
        assert one.offsets.tobytes() == both[1]
        assert one.ids.flags.writeable
        assert (one.ids.dtype, one.offsets.dtype) == (np.int32, np.int64)


def test_a_model_is_read_by_tokenizers_once_for_both_ways_to_see_special_tokens(monkeypatch):
    special = (SpecialToken("<m>", 256), SpecialToken("<t>", 257, special=False))
    tokens = (*(bytes([byte]) for byte in range(256)), b"<m>", b"<t>")
    vocabulary = Vocabulary(
        tokens, Bpe((), byte_level=True), special, normalizers=(Normalizer("nfc"),)
    )
    documents = []
    read = tokenizers_encoder.read_tokenizer

    def count(document: str) -> object:
        documents.append(document)
        return read(document)

    monkeypatch.setattr(tokenizers_encoder, "read_tokenizer", count)
    encoder = encoder_of(vocabulary)
    matched, plain = encoder.tokenizer(False), encoder.tokenizer(True)
    assert len(documents) == 1
    for text in ("a<m>b<t>", "<m><m", "e\u0301<t>", ""):
        assert matched.encode(text).ids == read(documents[0]).encode(text).ids
        alone = read(documents[0])
        alone.encode_special_tokens = True
        assert plain.encode(text).ids == alone.encode(text).ids
    assert matched.encode("<m>").ids == [256]
    assert plain.encode("<m>").ids != [256]


def test_a_token_named_padding_does_not_have_its_file_parsed_again(monkeypatch):
    monkeypatch.setattr(reader, "parse_json", lambda data: pytest.fail("parsed again"))
    content = b'{"truncation": null, "padding":null, "model": {"vocab": {"padding": 7}}}'
    assert describe_ignored({"tokenizer.json": content}) == ()
