"""Rules that match several letters, but no pair of letters, are left to the tokenizer."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from gpu.embedding.discovery.probe_texts import list_vocabulary_strings
from gpu.embedding.discovery.tokenizer_json import find_pattern_fault
from gpu.embedding.tokenizer_discovery import discover
from service.cli.parser import main

MOTIF = "TGAGGTAGTAGGTT"
LETTERS = {letter: i for i, letter in enumerate("?ACGTNU")}
WORDS = ["".join(word) for word in itertools.product("ACGT", repeat=3)]


def ids_are_its_own(source: Any, encode: Any, *texts: str) -> bool:
    """Return whether there is a rule; check that its ids are the tokenizer's."""
    rule = discover(source).rule
    for text in texts if rule is not None else ():
        assert rule is not None
        ids = rule.encode(np.frombuffer(text.encode(), np.uint8))
        assert ids is None or ids.tolist() == encode(text), text
    return rule is not None


def own_ids(tokenizer: Tokenizer, *texts: str) -> bool:
    return ids_are_its_own(tokenizer, lambda text: tokenizer.encode(text).ids, *texts)


def characters(vocab: dict[str, int], split: Any = None, **settings: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="?", **settings))
    if split is not None:
        tokenizer.pre_tokenizer = split
    return tokenizer


def word_level(strings: list[str], split: str) -> Tokenizer:
    vocab = {string: i for i, string in enumerate(dict.fromkeys(strings))}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(split), "isolated")
    return tokenizer


def test_motifs_of_a_vocabulary_that_was_trained_here_are_not_spelt(tmp_path: Path) -> None:
    source = random.Random(3)
    sides = ["".join(source.choices("ACGT", k=60)) for _ in range(40)]
    (tmp_path / "c.fa").write_text("".join(f">s\n{a}{MOTIF}{a}\n" for a in sides))
    (tmp_path / "m.tsv").write_text(f"{MOTIF}\tlet7\t1.0\nTATAAAAGGCGC\tbox\t1.0\n")
    out, bank = tmp_path / "tokenizer.json", tmp_path / "m.tsv"
    arguments = ["train", "-o", out, "--format", "tokenizer.json", "--size", 7, "--motifs", bank]
    more = ["--merge-rule", "span_preserving", tmp_path / "c.fa"]
    assert main([str(argument) for argument in [*arguments, *more]]) == 0
    tokenizer = Tokenizer.from_file(str(out))
    assert len(tokenizer.encode(f"AC{MOTIF}AC").ids) == 5
    assert not own_ids(tokenizer, f"AC{MOTIF}AC")


@pytest.mark.parametrize("split", [None, MOTIF, f"{MOTIF}|."])
def test_a_motif_among_letters_is_not_spelt(split: str | None) -> None:
    step = None if split is None else pre_tokenizers.Split(Regex(split), "isolated")
    tokenizer = characters({**LETTERS, MOTIF: 7}, step, ignore_merges=True)
    assert not own_ids(tokenizer, MOTIF, f"A{MOTIF}A")


def test_a_longer_word_among_words_is_not_spelt() -> None:
    strings = [*WORDS, "?", *"ACGT", MOTIF]
    assert own_ids(word_level(strings, ".{3}|."), f"ACG{MOTIF}A", MOTIF)
    assert not own_ids(word_level(strings, f"{MOTIF}|.{{3}}|."), f"ACG{MOTIF}A")
    strings.remove(MOTIF)  # Found all the same, and unknown.
    assert not own_ids(word_level(strings, f"{MOTIF}|.{{3}}|."), f"ACG{MOTIF}A")


@pytest.mark.parametrize(
    "normalizer",
    [
        normalizers.Replace("AUG", "N"),
        normalizers.Replace(Regex("GAUUACAGAU(UA|CA)"), "N"),
        normalizers.Replace(Regex("N{70}"), "U"),
        normalizers.Replace("T", "τ"),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("RYK", "N")]),
        normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace("gattaca", "n")]),
    ],
)
def test_what_rewrites_several_letters_is_left_to_itself(normalizer: Any) -> None:
    tokenizer = characters({**LETTERS, **{c: i + 7 for i, c in enumerate("acgtnuRYK")}})
    tokenizer.normalizer = normalizer
    texts = ("CCAUGCC", "GAUUACAGAUUAC", "N" * 70, "ARYKA", "GATTACA")
    assert not own_ids(tokenizer, *texts)


@pytest.mark.parametrize(
    "normalizer",
    [
        normalizers.Lowercase(),
        normalizers.Replace("U", "T"),
        normalizers.Replace(Regex("[^ACGTNacgtn]"), "N"),
        normalizers.Replace(Regex(r"R|Y|\s"), "N"),
        normalizers.Sequence([normalizers.NFKC(), normalizers.StripAccents(), normalizers.Strip()]),
        normalizers.BertNormalizer(lowercase=True),
    ],
)
def test_what_rewrites_single_letters_is_looked_up(normalizer: Any) -> None:
    tokenizer = characters({**LETTERS, **{c: i + 7 for i, c in enumerate("acgtnu")}})
    tokenizer.normalizer = normalizer
    assert own_ids(tokenizer, "ACGTNU", "acgtnu", "ARYA", "A", " AC GT ")


@pytest.mark.parametrize(
    ("split", "behavior", "is_harmless"),
    [
        (Regex("."), "isolated", True),
        (Regex("[ACGTN]|."), "isolated", True),
        ("", "isolated", True),
        (MOTIF, "isolated", True),  # Each letter has its id, wherever the pieces end.
        (MOTIF, "removed", False),
        (Regex("GA[CT]ACA"), "removed", False),
    ],
)
def test_splits_between_single_letters_are_looked_up(
    split: Any, behavior: str, is_harmless: bool
) -> None:
    tokenizer = characters(LETTERS, pre_tokenizers.Split(split, behavior))
    assert own_ids(tokenizer, MOTIF, "AGACACAA") == is_harmless


def test_letters_that_share_an_id_are_kept() -> None:
    tokenizer = characters({**LETTERS, "U": LETTERS["T"]})
    assert own_ids(tokenizer, "GAUTACA")
    assert discover(tokenizer).upstream is not None
    tokenizer.enable_padding()
    with pytest.raises(
        TypeError, match="several strings share an id, and a copy keeps only one of them"
    ):
        discover(tokenizer)


def test_a_special_token_that_a_normalizer_may_write_is_left_to_the_tokenizer() -> None:
    tokenizer = characters(LETTERS)
    tokenizer.normalizer = normalizers.Replace(Regex("[^ACGTN]"), "N")
    tokenizer.add_tokens([AddedToken("NACGTACA", normalized=True)])
    assert tokenizer.encode("RACGTACA").ids == [7]
    assert own_ids(tokenizer, "RACGTACA", "ACGT")


class Listed:
    """A tokenizer that lists its strings and matches the longest one first."""

    def __init__(self, vocab: dict[Any, int], name: str, mark: str = "") -> None:
        self.table = vocab
        listed = {mark + key: i for key, i in vocab.items()} if mark else vocab
        setattr(self, name, listed if name == "vocab" else lambda: listed)

    def encode(self, text: str) -> list[int]:
        ids, sizes = [], sorted({*map(len, self.table)}, reverse=True)
        while text:
            size = next((k for k in sizes if self._key(text[:k]) in self.table), 1)
            ids.append(self.table.get(self._key(text[:size]), 0))
            text = text[size:]
        return ids

    def _key(self, text: str) -> Any:
        return text if isinstance(next(iter(self.table)), str) else text.encode()


@pytest.mark.parametrize("name", ["get_vocab", "vocab", "token_byte_values"])
@pytest.mark.parametrize("motif", [MOTIF, MOTIF.lower(), "A CAT-GAG", "C\nGATTACA"])
def test_strings_that_a_tokenizer_lists_are_asked_for(name: str, motif: str) -> None:
    table: dict[Any, int] = {**LETTERS, **{c: i + 50 for i, c in enumerate("acgt")}, motif: 90}
    if name == "token_byte_values":
        table = {key.encode(): i for key, i in table.items()}
    tokenizer = Listed(table, name)
    text = f"AC{motif}AC"
    # One that does not say its special tokens has no codes but of letters, for the motif's signs.
    is_ruled = ids_are_its_own(tokenizer, tokenizer.encode, text, motif)
    assert is_ruled == (not motif.isalpha())


@pytest.mark.parametrize("mark", ["##", "\u0120", "\u2581"])
def test_marks_of_strings_do_not_hide_them(mark: str) -> None:
    tokenizer = Listed({**LETTERS, MOTIF: 90}, "get_vocab", mark)
    assert not ids_are_its_own(tokenizer, tokenizer.encode, MOTIF)


def test_what_lists_no_strings_is_taken_as_it_is() -> None:
    class Odd:
        vocab = 7

        def get_vocab(self, kind: str) -> list[str]:
            return [kind]

    assert list_vocabulary_strings(Odd()) == []
    assert list_vocabulary_strings(object()) == []
    assert find_pattern_fault(Odd()) == ""


def test_a_step_in_python_is_left_to_itself() -> None:
    class Motifs:
        def normalize(self, text: Any) -> None:
            text.replace(MOTIF, "N")

    tokenizer = characters(LETTERS)
    tokenizer.normalizer = normalizers.Normalizer.custom(Motifs())
    assert not own_ids(tokenizer, MOTIF)
    assert "does not describe" in discover(tokenizer).reason


@settings(max_examples=80)
@given(
    model=st.sampled_from(["words", "whole", "longest", "pieces"]),
    alphabet=st.sampled_from(["ACGT", "ACGU", "acgt"]),
    k=st.sampled_from([1, 3]),
    cuts=st.booleans(),
    case=st.sampled_from([None, normalizers.Lowercase()]),
    seed=st.integers(0, 9999),
)
def test_random_vocabularies(
    model: str, alphabet: str, k: int, cuts: bool, case: Any, seed: int
) -> None:
    """Letters or words and some longer strings, which a split may find, of several models."""
    source = random.Random(seed)
    longer = [
        "".join(source.choices(alphabet, k=source.randint(2, 20)))
        for _ in range(source.randrange(4))
    ]
    short = ["".join(word) for word in itertools.product(alphabet, repeat=k)]
    strings = list(dict.fromkeys(["?", *"ACGTUNacgtun", *short, *longer]))
    vocab = {string: i for i, string in enumerate(strings)}
    made: Any = {
        "words": lambda: models.WordLevel(vocab, unk_token="?"),
        "whole": lambda: models.BPE(vocab=vocab, merges=[], unk_token="?", ignore_merges=True),
        "longest": lambda: models.WordPiece(
            {**vocab, **{f"##{s}": i for s, i in vocab.items()}}, unk_token="?"
        ),
        "pieces": lambda: models.Unigram([(s, -source.random() * 9) for s in vocab], 0, False),
    }
    tokenizer = Tokenizer(made[model]())
    pattern = "|".join([*(longer if cuts else ()), f".{{{k}}}", "."])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    if case is not None:
        tokenizer.normalizer = case
    texts = ["".join(source.choices([*alphabet, *longer], k=size)) for size in range(30)]
    is_ruled = own_ids(tokenizer, *texts, *longer, *(text.upper() for text in texts))
    if model == "words" and not (longer and cuts):
        assert is_ruled
