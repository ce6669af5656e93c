"""`discover` finds the ids of tokenizers, and calls the tokenizer where it cannot prove them."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from gpu.embedding.discovery.probe_texts import SELF_TEST
from gpu.embedding.letter_rule import LetterRule, read_letter_rule
from gpu.embedding.tokenizer_discovery import Discovery, discover
from gpu.embedding.upstream_tokenizer import SequenceRefused
from service.engines.cpu.engine import CpuEngine
from tests.support.data_files import DATA
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import BUILTINS, load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

DNA = [name for name in BUILTINS if name not in ("gpt2", "cl100k_base", "o200k_base")]
RULED = [name for name in DNA if name not in ("dnabert2", "gena_lm_t2t_32k")]


def reference_ids(vocabulary: Vocabulary, text: str) -> list[int]:
    return reference.encode(vocabulary, text, EncodeOptions(add_special_tokens=False)).ids


class Plain:
    """A tokenizer that has `encode` and nothing else."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self.encode = encode


def check(discovery: Discovery, encode: Callable[[str], list[int]], alphabet: str) -> int:
    """Check that the rule gives the tokenizer's ids; return how many texts it has ids for."""
    source, num_known = random.Random(0), 0
    assert discovery.upstream is not None
    for length in [*range(30), 200]:
        text = "".join(source.choices(alphabet, k=length))
        ids, _ = discovery.upstream(Batch([text]))
        assert ids.tolist() == encode(text)
        ids_of_rule = None if discovery.rule is None else discovery.rule.encode(data_of(text))
        if ids_of_rule is not None:
            assert ids_of_rule.tolist() == encode(text), text
            num_known += 1
    return num_known


def data_of(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize("name", RULED)
@pytest.mark.parametrize("face", ["vocabulary", "plain"])
@pytest.mark.slow
def test_published_tokenizers_are_looked_up(name: str, face: str) -> None:
    vocabulary, engine = load(name), CpuEngine()

    def encode(text: str) -> list[int]:
        batch = Batch([text], options=EncodeOptions(add_special_tokens=False))
        return engine.encode(vocabulary, batch).ids.tolist()

    discovery = discover(vocabulary if face == "vocabulary" else Plain(encode))
    assert discovery.use_ids_path
    assert check(discovery, encode, "ACGT") == 31
    for alphabet in ("ACGTN", "ACGTacgtnRY", "ACGTé[]MASK"):
        check(discovery, encode, alphabet)
    if face == "vocabulary":
        assert discovery.pad_id == vocabulary.roles["pad"]


@pytest.mark.parametrize("name", ["dnabert2", "gena_lm_t2t_32k"])
@pytest.mark.parametrize("face", ["vocabulary", "plain", "tokenizers"])
def test_tokenizers_that_merge_are_left_to_themselves(
    name: str, face: str, caplog: pytest.LogCaptureFixture
) -> None:
    vocabulary = load(name)
    source: Any = vocabulary
    if face == "plain":
        source = Plain(lambda text: reference_ids(vocabulary, text))
    elif face == "tokenizers":
        path = DATA / "dna_vocab" / name / "tokenizer.json"
        if not path.is_file():
            pytest.skip(f"no {path.name} of {name} in the data folder (set WARPTOK_DATA)")
        source = Tokenizer.from_file(str(path))
    discovery = discover(source)
    assert not discovery.use_ids_path
    assert "come from the upstream tokenizer" in caplog.text
    assert discovery.reason in caplog.text
    if face != "vocabulary":
        assert SELF_TEST in discovery.reason
    assert check(discovery, lambda text: reference_ids(vocabulary, text), "ACGTN") == 0


def test_an_engine_takes_the_references_place() -> None:
    engine, vocabulary = CpuEngine(), load("dnabert2")
    discovery = discover(vocabulary, engine=engine)
    check(discovery, lambda text: reference_ids(vocabulary, text), "ACGTNR")
    assert discovery.upstream is not None
    with pytest.raises(SequenceRefused, match=r"row 1: .*UTF-8") as refused:
        discovery.upstream(Batch.from_bytes([b"A", b"\xff"]))
    assert refused.value.row == 1


def huggingface(vocab: dict[str, int], normalizer: Any = None, **settings: Any) -> Tokenizer:
    """A character tokenizer of `tokenizers`."""
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="?", **settings))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


LETTERS = {letter: i for i, letter in enumerate("?ACGTN-")}


def test_a_tokenizer_of_hugging_face_keeps_its_settings() -> None:
    """Its padding, truncation and template do not reach the ids; the object is not changed."""
    tokenizer = huggingface(LETTERS)
    tokenizer.add_special_tokens([AddedToken("[PAD]"), AddedToken("[CLS]")])
    tokenizer.enable_padding(pad_id=7, length=50)
    tokenizer.enable_truncation(3)
    discovery = discover(tokenizer)
    assert discovery.use_ids_path
    assert (discovery.pad_id, discovery.unknown_id) == (7, 5)
    assert tokenizer.padding["length"] == 50
    assert tokenizer.truncation["max_length"] == 3
    assert discovery.rule is not None
    assert discovery.rule.encode(data_of("ACGTNxA")).tolist() == [1, 2, 3, 4, 5, 0, 1]
    # One sign of a special token has no code, so that its text goes to the tokenizer.
    assert discovery.rule.encode(data_of("AC[PAD]")) is None
    assert discovery.upstream is not None
    assert discovery.upstream(Batch(["AC[PAD]"]))[0].tolist() == [1, 2, 7]


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        (huggingface(LETTERS, normalizers.Replace(Regex("N{10,}"), "-")), "'NNNN"),
        (huggingface(LETTERS, fuse_unk=True), "is not its letters' ids"),
        (huggingface(LETTERS, continuing_subword_prefix="##"), SELF_TEST),
    ],
)
def test_what_letters_alone_do_not_show_is_found(tokenizer: Tokenizer, reason: str) -> None:
    discovery = discover(tokenizer)
    assert not discovery.use_ids_path
    assert reason in discovery.reason


def test_white_space_that_gives_no_id_has_no_code() -> None:
    tokenizer = huggingface(LETTERS)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    rule = discover(tokenizer).rule
    assert rule is not None
    assert rule.encode(data_of("AC GT")) is None
    assert rule.encode(data_of("ACGT")).tolist() == [1, 2, 3, 4]


def test_letters_that_a_tokenizer_raises_for_are_left_to_it() -> None:
    table = dict(zip("ACGTN", range(5), strict=True))
    discovery = discover(Plain(lambda text: [table[letter] for letter in text]))
    assert discovery.rule is not None
    assert discovery.rule.encode(data_of("GATTACAN")).tolist() == [2, 0, 3, 3, 0, 1, 0, 4]
    assert discovery.rule.encode(data_of("acgt")) is None


def words_of(k: int, *more: str) -> dict[str, int]:
    words = map("".join, itertools.product("ACGT", repeat=k))
    return {word: i for i, word in enumerate([*words, *more])}


def test_a_word_that_a_tokenizer_raises_for_is_found_among_4096() -> None:
    table = words_of(6)
    del table["TAGACC"]
    discovery = discover(Plain(lambda text: [table[text[i : i + 6]] for i in range(len(text) - 5)]))
    assert not discovery.use_ids_path
    assert "'TAGACC'" in discovery.reason


@pytest.mark.parametrize("adapter", ["AGATCGGAAGAGC", "agatcggaagagc"])
def test_an_added_token_of_bases_may_be_anywhere_among_words(adapter: str) -> None:
    short = ["?", *"ACGT", *(a + b for a in "ACGT" for b in "ACGT")]
    tokenizer = Tokenizer(models.WordLevel(words_of(3, *short), unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(".{3}|."), "isolated")
    assert discover(tokenizer).use_ids_path
    tokenizer.add_tokens([AddedToken(adapter)])
    discovery = discover(tokenizer)
    assert not discovery.use_ids_path
    assert repr(adapter) in discovery.reason


@pytest.mark.parametrize("limit", [2_500, 5_000, 100_000])
@pytest.mark.parametrize("k", [1, 3])
def test_a_tokenizer_that_cuts_long_texts_is_left_to_itself(limit: int, k: int) -> None:
    table = words_of(k)

    def encode(text: str) -> list[int]:
        return [table[text[i : i + k]] for i in range(len(text) - k + 1)][:limit]

    assert not discover(Plain(encode)).use_ids_path


class InTransformersManner:
    """A slow tokenizer with the attributes of those of `transformers`."""

    pad_token_id, model_max_length = 4, 10**30
    all_special_tokens = ("[CLS]", "[PAD]")

    def convert_tokens_to_ids(self, token: str) -> int:
        return 6

    def __call__(self, texts: list[str], add_special_tokens: bool = True) -> dict[str, Any]:
        assert not add_special_tokens
        return {"input_ids": [reference_ids(load("hyenadna"), text) for text in texts]}


def test_embedders_say_what_they_know() -> None:
    class Config:
        max_position_embeddings = 1024
        pad_token_id = 9

    class Wrapper:
        tokenizer = InTransformersManner()

    class Embedder:
        config = Config()
        tokenizer: Any = Wrapper()
        embed_tokens: Any = staticmethod(lambda ids: ids)

    discovery = discover(Embedder())
    assert (discovery.pad_id, discovery.unknown_id) == (4, 11)
    assert (discovery.token_len, discovery.max_len) == (None, 1024)
    assert check(discovery, lambda text: reference_ids(load("hyenadna"), text), "ACGTNxyz") == 31
    assert discover(Embedder(), token_len=7).token_len == 7
    assert discover(Embedder(), token_len="max").token_len == 1024
    without = Embedder()
    without.tokenizer = None
    discovery = discover(without)
    assert (discovery.pad_id, discovery.unknown_id) == (9, 0)
    assert discovery.rule is not None
    assert discovery.rule.encode(data_of("ACGTNacgtn?\xff")).tolist() == [1, 2, 3, 4, 0] * 2 + [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("source", [7, object()])
def test_what_is_no_tokenizer_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="has no method encode"):
        discover(source)


@settings(max_examples=60)
@given(
    k=st.integers(1, 5),
    overlapping=st.booleans(),
    keeps_rest=st.booleans(),
    merges=st.booleans(),
    seed=st.integers(0, 999),
)
def test_random_tokenizers(
    k: int, overlapping: bool, keeps_rest: bool, merges: bool, seed: int
) -> None:
    """Words of k letters, side by side or not; remaining letters have ids or none."""
    source = random.Random(seed)
    numbers: dict[str, int] = {}

    def number(word: str) -> int:
        return numbers.setdefault(word, source.randrange(100_000))

    def encode(text: str) -> list[int]:
        if merges:
            text = text.replace("AC", "N")
        step = 1 if overlapping else k
        words = [text[i : i + k] for i in range(0, len(text) - k + 1, step)]
        rest = text[len(text) // k * k :] if keeps_rest and not overlapping else ""
        return [number(word) for word in [*words, *rest]]

    discovery = discover(Plain(encode))
    num_known = check(discovery, encode, "ACGT")
    if merges:
        assert num_known == 0
        assert not discovery.use_ids_path
    else:
        assert num_known == 31


@pytest.mark.parametrize("name", RULED)
def test_the_rules_counts_are_the_numbers_of_ids(name: str) -> None:
    rule = read_letter_rule(load(name))
    assert isinstance(rule, LetterRule)
    lengths = np.arange(40)
    rows = [rule.encode(data_of("A" * length)) for length in lengths]
    assert rule.count_ids(lengths).tolist() == [len(ids) for ids in rows if ids is not None]


def test_a_vocabulary_of_the_library_alone_needs_an_engine() -> None:
    from vocabularies.model.types import Upstream

    vocabulary = Vocabulary(tokens=(b"A",), model=Upstream("{}", "it is Unigram"))
    with pytest.raises(TypeError, match="needs an engine: it is Unigram"):
        discover(vocabulary)


def test_a_rule_that_differs_from_the_tokenizer_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Wrong(CpuEngine):
        def encode(self, vocabulary: Vocabulary, batch: Batch) -> Any:
            encoded = super().encode(vocabulary, batch)
            encoded.ids[encoded.ids == 7] = 8
            return encoded

    with caplog.at_level(logging.WARNING):
        discovery = discover(load("hyenadna"), engine=Wrong())
    assert not discovery.use_ids_path
    assert discovery.reason == f"{SELF_TEST!r} is not its letters' ids: upstream gives ids " + str(
        [8, 8, 9, 10, 11, 6, 6, 6, 6, 11]
    )
