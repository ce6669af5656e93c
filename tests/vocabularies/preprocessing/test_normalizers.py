"""The normalizers and their alignments against tokenizers' own."""

from __future__ import annotations

import itertools
import os
import random
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from tests.support.data_files import data_bytes, data_json
from tests.support.inputs.nasty_texts import SEQUENCES, TEXTS
from vocabularies.preprocessing import normalizers as ours
from vocabularies.preprocessing.normalizers import (
    Normalizer,
    lowercase,
    nfc,
    normalize,
    replace,
    replace_regex,
    strip,
)
from vocabularies.preprocessing.probe_unicode import CODE_POINTS
from vocabularies.preprocessing.unicode_classes import normalizer_code_points

NFC, LOWERCASE = normalizers.NFC(), normalizers.Lowercase()
STRIP = normalizers.Strip()
EXHAUSTIVE = os.environ.get("WARPTOK_EXHAUSTIVE") == "1"
DECOMPOSING = sorted(normalizer_code_points("decomposing"))
COMBINING = sorted(normalizer_code_points("combining"))
HANGUL = "\u1100\u1112\u1161\u1175\u11a7\u11a8\u11c2\uac00\uac01\ud7a3\ud788"
KNOWN = normalizer_code_points("decomposing") | normalizer_code_points("combining")
# Characters that Python may combine or decompose and the library's older tables do not know.
NEWER = [
    chr(c)
    for c in CODE_POINTS
    if (unicodedata.combining(chr(c)) or unicodedata.normalize("NFD", chr(c)) != chr(c))
    and chr(c) not in KNOWN
]
SMALL = [c for c in DECOMPOSING if not "\uac00" <= c <= "\ud7a3"][::9]
MARKS = COMBINING[::13] + sorted({second for _, second in ours._compositions()})
ALPHABET = [*"aeoAEO \nd\u0130\u03a3\u4e2d", *HANGUL, *MARKS, *MARKS, *SMALL, *NEWER]


# One for each normalizer, which is kept so that its id() stays its own.
_TOKENIZERS: dict[int, tuple[Any, Tokenizer]] = {}


def theirs(normalizer: Any, text: str) -> ours.Aligned:
    """Normalize a text by tokenizers; return it and where each character came from."""
    if id(normalizer) not in _TOKENIZERS:
        tokenizer = Tokenizer(models.WordLevel({"\x00": 0}, unk_token="\x00"))
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        _TOKENIZERS[id(normalizer)] = normalizer, tokenizer
    normalized = normalizer.normalize_str(text)
    offsets = _TOKENIZERS[id(normalizer)][1].encode(text, add_special_tokens=False).offsets
    assert len(offsets) == len(normalized)
    return normalized, offsets


@pytest.mark.slow
def test_every_code_point_by_itself() -> None:
    text = "\n".join(map(chr, CODE_POINTS))
    assert nfc(text)[0] == NFC.normalize_str(text)
    assert lowercase(text)[0] == LOWERCASE.normalize_str(text)
    stripped = {c for c in map(chr, CODE_POINTS) if not STRIP.normalize_str(c)}
    assert stripped == normalizer_code_points("strip")
    for c in [*stripped, "\x1c", "\u200b", "\ufeff", "\u180e"]:
        assert strip(f"{c}a{c}") == theirs(STRIP, f"{c}a{c}")


def test_every_decomposition_composes_again() -> None:
    parts = "\n".join(unicodedata.normalize("NFD", c) for c in DECOMPOSING)
    assert nfc(parts) == theirs(NFC, parts)


def test_combining_classes_are_those_of_the_library() -> None:
    classes = {unicodedata.combining(c): c for c in COMBINING}
    assert 0 not in classes and len(classes) > 50
    some = list(classes.values()) if EXHAUSTIVE else list(classes.values())[::4]
    text = "\n".join(f"q{c}{other}\nq{other}{c}" for c in COMBINING for other in some)
    assert nfc(text)[0] == NFC.normalize_str(text)


def test_every_pair_of_characters_that_could_compose() -> None:
    firsts = {first for first, _ in ours._compositions() if not "\uac00" <= first <= "\ud7a3"}
    seconds = {second for _, second in ours._compositions()}
    text = "\n".join(a + b for a in sorted(firsts) for b in sorted(seconds))
    assert nfc(text)[0] == NFC.normalize_str(text)


def test_characters_newer_than_the_librarys_tables_stay_and_block() -> None:
    assert len(NEWER) >= 99
    for c in NEWER:
        for text in (c, f"e{c}\u0301", f"e\u0301{c}\u0323", f"{c}\u0323\u0301", f"a\u0301{c}"):
            assert nfc(text) == theirs(NFC, text)


def test_text_without_newer_characters_is_what_unicode_says() -> None:
    source = random.Random(1)
    old = [c for c in ALPHABET if c not in NEWER]
    for _ in range(2000):
        text = "".join(source.choices(old, k=source.randrange(30)))
        assert nfc(text)[0] == unicodedata.normalize("NFC", text)


def test_random_runs_and_their_alignment() -> None:
    source = random.Random(2)
    for _ in range(30_000 if EXHAUSTIVE else 3000):
        text = "".join(source.choices(ALPHABET, k=source.randrange(30)))
        assert nfc(text) == theirs(NFC, text), ascii(text)
        assert lowercase(text) == theirs(LOWERCASE, text), ascii(text)


@settings(max_examples=100)
@given(st.text(st.sampled_from([*ALPHABET, *" \t\x85\u3000"]) | st.characters(codec="utf-8")))
def test_hypothesis_texts(text: str) -> None:
    assert nfc(text) == theirs(NFC, text)
    assert lowercase(text) == theirs(LOWERCASE, text)
    for left, right in itertools.product([False, True], repeat=2):
        assert strip(text, left, right) == theirs(normalizers.Strip(left, right), text)


@pytest.mark.parametrize("text", [*TEXTS, *SEQUENCES])
def test_nasty_texts(text: str) -> None:
    assert nfc(text) == theirs(NFC, text)
    assert lowercase(text) == theirs(LOWERCASE, text)
    assert strip(text) == theirs(STRIP, text)
    assert replace(text, "a", "xé") == theirs(normalizers.Replace("a", "xé"), text)
    normalizer = normalizers.Replace(Regex("N{10,}"), "-")
    assert replace_regex(text, "N{10,}", "-") == theirs(normalizer, text)


def test_hand_written_examples() -> None:
    assert nfc("e\u0301x") == ("éx", [(0, 1), (2, 3)])
    assert nfc("\u0958") == ("\u0915\u093c", [(0, 1), (0, 1)])
    assert lowercase("ΑΣ İ") == (
        "ας".replace("ς", "σ") + " i̇",
        [(i, i + 1) for i in (0, 1, 2, 3, 3)],
    )
    assert strip("  a b ") == ("a b", [(2, 3), (3, 4), (4, 5)])
    assert strip("  ") == ("", [])
    assert replace("aNNb", "NN", "--") == ("a--b", [(0, 1), (2, 3), (2, 3), (3, 4)])
    assert replace_regex("aNNNb", "N{2,}", "") == ("ab", [(0, 1), (4, 5)])


@pytest.mark.parametrize("pattern", ["a", "aa", " ", "aba", ".", "é", "a b", "\n", "[a]", "\\s"])
@pytest.mark.parametrize("content", ["", "-", "éx", "aa", "\\1"])
def test_replace_is_literal(pattern: str, content: str) -> None:
    normalizer = normalizers.Replace(pattern, content)
    for length in range(6):
        for letters in itertools.product("ab é.\n[" if length < 4 else "ab ", repeat=length):
            text = "".join(letters)
            assert replace(text, pattern, content) == theirs(normalizer, text)


@pytest.mark.parametrize(
    "pattern",
    [
        *("a+", "a{2,}", "a{2}", "a{1,2}b?", "[ab]+", "[^a]+", r"\s+", r"\s{2,}", " {2,}", "a|b+"),
        *("(?:ab)+", "(ab)+a", r"[\r\n]+", r"\w+", r"\W", r"\p{L}+", r"[\s\p{P}]+", r"a\.", "a++a"),
        *(r"[\^\-\]]+", "a*b", "(a|ab)(b|)", "[0-9A-F]+", r"\S+"),
    ],
)
def test_replace_regex_is_that_of_the_library(pattern: str) -> None:
    try:
        ours.compile_replacement(pattern)
    except ValueError:
        pytest.fail(f"{pattern} is refused")
    normalizer = normalizers.Replace(Regex(pattern), "-é")
    texts = [*TEXTS, *SEQUENCES, "a\u200db\xb2c_\x85", "a.]-^b 0F"]
    texts += map("".join, itertools.product("ab \n.", repeat=4))
    for text in texts:
        assert replace_regex(text, pattern, "-é") == theirs(normalizer, text), ascii(text)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a*",
        "a?",
        "(?:a*)",
        "^a",
        "a$",
        "(?=a)",
        "(?!a)b",
        "(?i:s)",
        r"\d",
        ".",
        r"(a)\1",
        "a+?",
    ],
)
def test_other_regexes_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"possible|everywhere|disagree|supported"):
        replace_regex("aaa", pattern, "-")


def test_empty_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="everywhere"):
        replace("aaa", "", "-")


STEPS = {
    Normalizer("nfc"): NFC,
    Normalizer("lowercase"): LOWERCASE,
    Normalizer("strip"): normalizers.Strip(),
    Normalizer("strip", right=False): normalizers.Strip(right=False),
    Normalizer("replace", " ", "\u2581"): normalizers.Replace(" ", "\u2581"),
    Normalizer("replace", "a", ""): normalizers.Replace("a", ""),
    Normalizer("replace_regex", "[ a]{2,}", "e\u0301\u0323"): normalizers.Replace(
        Regex("[ a]{2,}"), "e\u0301\u0323"
    ),
}


@pytest.mark.parametrize("steps", list(itertools.permutations(STEPS, 3)))
def test_steps_one_after_the_other(steps: tuple[Normalizer, ...]) -> None:
    source = random.Random(str(steps))
    normalizer = normalizers.Sequence([STEPS[step] for step in steps])
    alphabet = [
        "a",
        " ",
        "  ",
        "A",
        "e",
        "\u0301",
        "\u0323",
        "\u0130",
        "\u0958",
        "\uac00",
        "\u11a8",
    ]
    for _ in range(15):
        text = "".join(source.choices(alphabet, k=source.randrange(20)))
        assert normalize(text, steps) == theirs(normalizer, text), ascii(text)


def test_no_steps_change_nothing() -> None:
    assert normalize("aé", ()) == ("aé", [(0, 1), (1, 2)])


def test_steps_of_a_real_file() -> None:
    steps = data_json("dna_vocab/gena_lm_t2t_32k/tokenizer.json")["normalizer"]["normalizers"]
    assert [step["type"] for step in steps] == ["Strip", "Replace"]
    normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.Replace(Regex("N{10,}"), "-")]
    )
    rule = (Normalizer("strip"), Normalizer("replace_regex", steps[1]["pattern"]["Regex"], "-"))
    for text in [*SEQUENCES, " ACGT" + "N" * 25 + "AC\n"]:
        assert normalize(text, rule) == theirs(normalizer, text)


@pytest.mark.parametrize(
    "file",
    [
        "normalization_strings_half_a.txt",
        "udhr_17_languages.txt",
        "debian_faq_ko.txt",
        "runs_and_random.txt",
        "blns.txt",
    ],
)
def test_real_files(file: str) -> None:
    text = data_bytes(f"text/{file}").decode()
    text = text if EXHAUSTIVE else text[:50_000]
    assert nfc(text) == theirs(NFC, text)
    assert lowercase(text) == theirs(LOWERCASE, text)
