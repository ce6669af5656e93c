"""The pretokenizer `motifs`: its faults, where it cuts, its digest, its tokenizer.json."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Split

from tests.support.inputs.motif_strategies import (
    NORMALIZERS,
    motif_banks,
    motif_cases,
    motif_vocabulary,
)
from vocabularies.batch.batch import EncodeOptions
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.formats.huggingface.motif_pattern import motif_pattern, motifs_of_pattern
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.canonical import to_bytes
from vocabularies.model.types import Bpe, Characters, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.motif_pretokenizer import MAX_MOTIFS, split_at_motifs
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.reference.tokenizer import decode, encode

SEEDS = motif_vocabulary("ACGT", [("A", "C")], ["ACG", "GT", "AC"])


def pieces(text: str, *motifs: str) -> list[str]:
    return [text[begin:end] for begin, end in split_at_motifs(text, motifs)]


def test_motifs_are_cut_leftmost_and_longest():
    assert pieces("TACGTT", "AC", "ACG", "GT") == ["T", "ACG", "TT"]
    assert pieces("ACACGA", "AC", "ACG") == ["AC", "ACG", "A"]
    assert pieces("TTTTT", "TT") == ["TT", "TT", "T"]
    assert pieces("aé中b", "é中") == ["a", "é中", "b"]
    assert pieces("TTT", "A") == ["TTT"]
    assert pieces("", "A") == []


@settings(max_examples=300)
@given(motif_banks("AC", 6), st.text("ACG", max_size=60))
def test_a_cut_is_that_of_the_longest_alternative_first(motifs, text):
    in_order = sorted(motifs, key=len, reverse=True)
    found = re.findall("|".join(in_order) + "|.", text)
    cut = pieces(text, *motifs)
    assert "".join(cut) == text
    assert [piece for piece in cut if piece in motifs] == [f for f in found if f in motifs]
    # What lies between holds no motif: a span is either a token or taken by another motif.
    assert not any(m in piece for piece in cut if piece not in motifs for m in motifs)


def test_a_motif_is_one_token_for_any_merges():
    assert SEEDS.tokens[5:] == (b"T", b"AC", b"ACG", b"GT")
    row = encode(SEEDS, "TACGTTACT", EncodeOptions(spans=True, add_special_tokens=False))
    assert [SEEDS.tokens[i] for i in row.ids] == [b"T", b"ACG", b"T", b"T", b"AC", b"T"]
    assert row.spans == [(0, 1), (1, 4), (4, 5), (5, 6), (6, 8), (8, 9)]
    assert decode(SEEDS, row.ids) == b"TACGTTACT"


@settings(max_examples=200)
@given(motif_cases())
def test_every_span_that_is_cut_out_is_one_token(case):
    """The motif-distortion rate of spans that do not overlap is 0, in any vocabulary and text."""
    vocabulary, texts = case
    for text in texts:
        row = encode(vocabulary, text, EncodeOptions(spans=True, special="plain"))
        tokens = dict(zip(row.spans, row.ids, strict=True))
        for begin, end in split_at_motifs(text, vocabulary.motifs):
            if text[begin:end] in vocabulary.motifs:
                first = len(text[:begin].encode())
                motif = text[begin:end].encode()
                assert vocabulary.tokens[tokens[first, first + len(motif)]] == motif


def faults(motifs: tuple[str, ...], pretokenizer: str = "motifs", **more) -> list[tuple[str, str]]:
    model = more.pop("model", Bpe((), ignore_merges=True))
    with pytest.raises(VocabularyError) as raised:
        Vocabulary(
            (b"A", b"C", b"AC", b"N", None, b"<s>", b"A" * 300),
            model,
            (SpecialToken("<s>", 5),),
            pretokenizer=pretokenizer,
            motifs=motifs,
            **more,
        )
    return [(finding.where, finding.message) for finding in raised.value.findings]


def test_every_fault_of_motifs_is_found_with_its_place():
    assert faults(("AC", "", "GT", "AC", "<s>", "A" * 300)) == [
        ("motifs[1]", "an empty motif would match everywhere"),
        ("motifs[2]", "'GT' is not a token"),
        ("motifs[3]", "'AC' is also motifs[0]"),
        ("motifs[4]", "'<s>' is a special token, which is found before any motif"),
        ("motifs[5]", "has 300 bytes; a motif has at most 256"),
    ]
    assert faults(()) == [("motifs", "the pretokenizer 'motifs' needs at least one motif")]
    assert faults(("AC",), "gpt2") == [
        ("motifs", "the pretokenizer gpt2 does not cut motifs; 'motifs' does")
    ]
    assert faults(("AC",), model=Bpe(())) == [
        (
            "model.ignore_merges",
            "must be true, so that a motif is its own token whatever the merges give",
        )
    ]
    assert faults(("AC",), model=Characters((("A", 0),), 1)) == [
        ("pretokenizer", "a vocabulary of kind characters cannot cut motifs; only BPE can")
    ]
    assert faults(("A",) * (MAX_MOTIFS + 1))[0] == (
        "motifs",
        f"has {MAX_MOTIFS + 1} motifs; at most {MAX_MOTIFS} are possible",
    )


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ((Normalizer("lowercase"),), "no 'A', 'C'"),
        ((Normalizer("replace", "C", "A"),), "no 'C'"),
        ((Normalizer("lowercase"), Normalizer("replace", "c", "C")), "no 'A'"),
    ],
)
def test_a_motif_that_normalizers_leave_no_text_for_is_a_fault(steps, fault):
    [(where, message)] = faults(("AC",), normalizers=steps)
    assert where == "motifs[0]"
    assert message == f"'AC' is never found: the normalizers leave {fault}"


@settings(max_examples=60)
@given(motif_cases(normalizers=tuple(NORMALIZERS)), st.randoms())
def test_motifs_come_back_in_any_order_with_one_digest(case, chance):
    vocabulary, _ = case
    again = read_canonical(to_bytes(vocabulary))
    assert again.motifs == vocabulary.motifs == tuple(sorted(vocabulary.motifs))
    assert again.digest == vocabulary.digest
    mixed = chance.sample(vocabulary.motifs, len(vocabulary.motifs))
    assert replace(vocabulary, motifs=tuple(mixed)).digest == vocabulary.digest
    # The file has no word for special tokens that are not looked for.
    read = read_vocabulary(write_vocabulary(vocabulary, "tokenizer.json"))
    assert read.motifs == vocabulary.motifs
    assert read_vocabulary(write_vocabulary(read, "tokenizer.json")).digest == read.digest


def test_a_vocabulary_without_motifs_has_the_digest_it_had_before_there_were_any():
    vocabulary = Vocabulary((b"a", b"b"), Bpe(()))
    assert b"motifs" not in to_bytes(vocabulary)


def test_other_files_than_tokenizer_json_cannot_say_motifs():
    vocabulary = motif_vocabulary("A", [], ["AC"], byte_level=True)
    for format, where in (("tiktoken", "motifs"), ("vocab.json", "model")):
        with pytest.raises(VocabularyError) as raised:
            write_vocabulary(vocabulary, format)
        assert raised.value.findings[0].where == where


@settings(max_examples=300)
@given(motif_cases(normalizers=tuple(NORMALIZERS)))
def test_the_library_gives_equal_ids(case):
    vocabulary, texts = case
    library = Tokenizer.from_str(tokenizer_json(vocabulary))
    for text in texts:
        for plain in (False, True):
            library.encode_special_tokens = plain
            options = EncodeOptions(special="plain" if plain else "match")
            assert library.encode(text).ids == encode(vocabulary, text, options).ids


@settings(max_examples=200)
@given(motif_banks("ACé.(?", 12), st.text("ACé.(?x", max_size=60))
def test_the_regex_finds_the_longest_motif_and_comes_back(motifs, text):
    pattern = motif_pattern(sorted(motifs))
    assert motifs_of_pattern(pattern) == tuple(sorted(motifs))
    split = Split(Regex(pattern), "isolated")
    assert [piece for piece, _ in split.pre_tokenize_str(text)] == pieces(text, *motifs)


def test_a_regex_is_read_only_where_the_longest_is_tried_first():
    for pattern, motifs in {
        "ACG|AC|GT": ("AC", "ACG", "GT"),
        "(AC)(?:G|T)?|A": ("A", "AC", "ACG", "ACT"),
        r"A\.\(|A": ("A", "A.("),
        "AC?": ("A", "AC"),
    }.items():
        assert motifs_of_pattern(pattern) == motifs
    for pattern in (
        *("AC|ACG", "A|(?:C|)", "A*", "A+", "[AC]", "A.", r"\d", "(?i)A", "A??", "A?+", "^A", ""),
        *("(A", "A)", "(?<n>A)", "A{2}", "(?:" * 300 + "A" + ")" * 300, "(?:A|C)" * 20, "A" * 257),
    ):
        assert motifs_of_pattern(pattern) is None, pattern


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ignore_merges": False}, "must be true"),
        ({"pattern": "AC|TTT"}, "'TTT' is not a token"),
        ({"pattern": "AC|ACG"}, "this combination is not supported"),
        ({"behavior": "Removed"}, "this combination is not supported"),
    ],
)
def test_a_split_step_that_is_not_motifs_becomes_upstream(changes, reason):
    document = json.loads(tokenizer_json(SEEDS))
    split = document["pre_tokenizer"]
    split["pattern"] = {"Regex": changes.get("pattern", split["pattern"]["Regex"])}
    split["behavior"] = changes.get("behavior", split["behavior"])
    document["model"]["ignore_merges"] = changes.get("ignore_merges", True)
    read = read_vocabulary({"tokenizer.json": json.dumps(document).encode()})
    assert isinstance(read.model, Upstream)
    assert reason in read.model.reason


def test_ten_thousand_motifs_are_written_checked_and_read():
    motifs = sorted(
        {f"{i * 2654435761 % 4**11:022b}".translate({48: "A", 49: "C"}) for i in range(10_000)}
    )
    written = write_vocabulary(motif_vocabulary("ACGT", [], motifs), "tokenizer.json")
    assert read_vocabulary(written).motifs == tuple(motifs)
