"""The pretokenizers against the engines they describe: tokenizers' borders and tiktoken's pieces.

WARPTOK_EXHAUSTIVE=1 adds every code point in every context, all triples of the large alphabet and
whole files.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from tests.support.data_files import data_bytes, data_json
from tests.support.inputs.nasty_texts import RUNS, TEXTS
from vocabularies.preprocessing.class_patterns import compile_patterns, fingerprint, to_code_points
from vocabularies.preprocessing.pretokenizers import (
    PRETOKENIZERS,
    find_pretokenizer,
    is_byte_level,
    pretokenize,
    recognize_hf_json,
    recognize_tiktoken_pattern,
)
from vocabularies.preprocessing.probe_unicode import CODE_POINTS, CONTRACTION_LETTERS, DATA, main
from vocabularies.preprocessing.published_patterns import CL100K, LLAMA3, SPELLINGS
from vocabularies.preprocessing.unicode_classes import (
    CLASSES,
    class_mask,
    engine_versions,
    folded,
    lowercase_mapping,
    normalizer_code_points,
)

Spans = list[tuple[int, int]]

EXHAUSTIVE = os.environ.get("WARPTOK_EXHAUSTIVE") == "1"
NAMES = [*PRETOKENIZERS, "isolate:-", "isolate:'s"]
HF_NAMES = [name for name in NAMES if find_pretokenizer(name).hf_json is not None]
TIKTOKEN_NAMES = [name for name in NAMES if find_pretokenizer(name).tiktoken_pattern is not None]
# One character of each kind that some rule tells apart, then more of the same kinds.
ALPHABET = "'sSl\u017f \n\r\ta1.A\u01c5\u02b0\u4e2d\u0301/-\x00"
EVERY_CHARACTER = "".join(map(chr, CODE_POINTS))
LARGE = ALPHABET + "LvedtmrVE\x85\xa0\u3000\u2028\xe9\xbd\u0663\u30a2+\u20ac\u200d\ufeff\U0001f600_"
FILES = [
    "blns.txt",
    "code_c_headers.txt",
    "code_js_lodash.txt",
    "code_python_stdlib.txt",
    "debian_faq_ko.txt",
    "debian_reference_de.txt",
    "debian_reference_ja.txt",
    "debian_reference_zh-cn.txt",
    "emoji_test_15.0.txt",
    "grapheme_break_test.txt",
    "gsm8k_test.jsonl",
    "normalization_strings_half_a.txt",
    "pride_and_prejudice.txt",
    "runs_and_random.txt",
    "udhr_17_languages.txt",
    "war_and_peace.txt",
    "wikitext2_test.raw.txt",
]


@functools.cache
def from_json(pre_tokenizer: str) -> Any:
    """Return the pretokenizer that the library tokenizers makes from a JSON object."""
    model = {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "x"}
    return Tokenizer.from_str(
        json.dumps({"model": model, "pre_tokenizer": json.loads(pre_tokenizer), "added_tokens": []})
    ).pre_tokenizer


def hf_spans(name: str, text: str) -> Spans:
    """Split a text with the library tokenizers, by the JSON that we write for a rule."""
    theirs = from_json(json.dumps(find_pretokenizer(name).hf_json))
    return [span for _, span in theirs.pre_tokenize_str(text)]


def tiktoken_pieces(pattern: str, texts: Iterable[str]) -> Iterator[list[bytes]]:
    """Split a short text by tiktoken: every substring is a token, so each piece is one id."""
    texts = list(texts)
    ranks = {bytes([byte]): byte for byte in range(256)}
    for text in texts:
        for begin, end in itertools.combinations(range(len(text) + 1), 2):
            ranks.setdefault(text[begin:end].encode(), len(ranks))
    encoding = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    tokens = {rank: token for token, rank in ranks.items()}
    for text in texts:
        yield [tokens[rank] for rank in encoding.encode_ordinary(text)]


def assert_tiktoken_cuts_alike(name: str, *texts: str) -> None:
    """Compare a long text with tiktoken: our pieces are its tokens, so each must be one id."""
    ours = [[text[a:b].encode() for a, b in pretokenize(name, text)] for text in texts]
    ranks = {bytes([byte]): byte for byte in range(256)}
    for piece in itertools.chain(*ours):
        ranks.setdefault(piece, len(ranks))
    pattern = find_pretokenizer(name).tiktoken_pattern
    assert pattern is not None
    encoding = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for text, pieces in zip(texts, ours, strict=True):
        assert encoding.encode_ordinary(text) == [ranks[piece] for piece in pieces]


def assert_engines_agree(name: str, texts: Iterable[str]) -> None:
    """Check that every engine that knows the rule splits each text at the same borders."""
    texts = list(texts)
    ours = [pretokenize(name, text) for text in texts]
    rule = find_pretokenizer(name)
    if rule.hf_json is not None:
        for text, spans in zip(texts, ours, strict=True):
            assert spans == hf_spans(name, text), f"{name} {text!a}"
    if rule.tiktoken_pattern is not None:
        theirs = tiktoken_pieces(rule.tiktoken_pattern, texts)
        for text, spans, pieces in zip(texts, ours, theirs, strict=True):
            assert [text[a:b].encode() for a, b in spans] == pieces, f"{name} {text!a}"


def every_tuple_once(alphabet: str, length: int) -> str:
    """Make a De Bruijn sequence, which holds every tuple of characters."""
    word, digits = [0] * (len(alphabet) * length), list[int]()

    def extend(t: int, p: int) -> None:
        if t > length:
            digits.extend(word[1 : p + 1] if length % p == 0 else [])
            return
        word[t] = word[t - p]
        extend(t + 1, p)
        for letter in range(word[t - p] + 1, len(alphabet)):
            word[t] = letter
            extend(t + 1, t)

    extend(1, 1)
    return "".join(alphabet[digit] for digit in digits)


@functools.cache
def class_border_characters() -> list[str]:
    """Return the characters on both sides of every place where a class begins or ends."""
    found = set()
    for name in CLASSES:
        mask = class_mask(name, "rust")
        for place in (mask[1:] != mask[:-1]).nonzero()[0].tolist():
            found |= {place, place + 1}
    return [chr(c) for c in sorted(found) if not 0xD800 <= c < 0xE000]


# The class tables, for every code point.


def engine_members(engine: str, pattern: str) -> NDArray[np.uint32]:
    """Return the code points that an engine's regex matches, each as a text of one character."""
    if engine == "rust":
        ranks = {bytes([byte]): byte for byte in range(256)}
        encoding = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return to_code_points(bytes(encoding.encode_ordinary(EVERY_CHARACTER)).decode())
    left = normalizers.Replace(Regex(f"(?:{pattern})+"), "").normalize_str(EVERY_CHARACTER)
    return np.setdiff1d(to_code_points(EVERY_CHARACTER), to_code_points(left), assume_unique=True)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("engine", ["rust", "onig"])
def test_class_table_is_the_engines_answer(name: str, engine: Any) -> None:
    members = engine_members(engine, f"\\{name}" if name.islower() else f"\\p{{{name}}}")
    assert members.tolist() == class_mask(name, engine).nonzero()[0].tolist()


@pytest.mark.parametrize("engine", ["rust", "onig"])
def test_folded_letters_are_the_engines_answer(engine: Any) -> None:
    pattern = f"(?i:[{CONTRACTION_LETTERS}])"
    found = "".join(chr(c) for c in engine_members(engine, pattern))
    assert set(found) == set().union(*(folded(letter, engine) for letter in CONTRACTION_LETTERS))
    for letter in CONTRACTION_LETTERS:
        split = pre_tokenizers.Split(Regex(f"(?i:{letter})"), "removed", invert=True)
        pieces = {piece for piece, _ in split.pre_tokenize_str(found)}
        assert pieces == folded(letter, engine)


def test_engines_agree_on_every_class_but_word_characters() -> None:
    differing = {n for n in CLASSES if (class_mask(n, "rust") != class_mask(n, "onig")).any()}
    assert differing == {"w"}
    only_one = class_mask("w", "rust") != class_mask("w", "onig")
    assert only_one.nonzero()[0].tolist() == [0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE, 0x200C, 0x200D]


def test_letters_are_the_sum_of_their_categories() -> None:
    parts = [class_mask(name, "rust") for name in ("Lu", "Ll", "Lt", "Lm", "Lo")]
    assert (np.sum(parts, axis=0) == class_mask("L", "rust")).all()


@pytest.mark.skipif(not EXHAUSTIVE, reason="20 seconds; set WARPTOK_EXHAUSTIVE=1")
def test_data_file_is_what_the_probe_writes(tmp_path: Path) -> None:
    main(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == DATA.read_bytes()


def test_tables_name_their_source_and_are_read_only() -> None:
    assert set(engine_versions()) == {"rust", "onig"}
    with pytest.raises(ValueError, match="read-only"):
        class_mask("L", "rust")[0] = True
    with pytest.raises(KeyError):
        class_mask("Zs", "rust")
    assert lowercase_mapping()[0x41] == "a"
    assert " " in normalizer_code_points("strip")


# The rules, against both engines.


@pytest.mark.parametrize("name", HF_NAMES)
def test_characters_at_class_borders_are_cut_as_tokenizers_cuts_them(name: str) -> None:
    for context in ("a{}b ", " {}1", "'{}\n", "{}{}/"):
        text = "".join(context.replace("{}", c) for c in class_border_characters())
        assert pretokenize(name, text) == hf_spans(name, text)


@pytest.mark.parametrize("name", TIKTOKEN_NAMES)
def test_characters_at_class_borders_are_cut_as_tiktoken_cuts_them(name: str) -> None:
    characters = EVERY_CHARACTER if EXHAUSTIVE else class_border_characters()
    assert_tiktoken_cuts_alike(name, "".join(f"a{c}b " for c in characters))


@pytest.mark.skipif(not EXHAUSTIVE, reason="minutes; set WARPTOK_EXHAUSTIVE=1")
@pytest.mark.parametrize("name", HF_NAMES)
def test_every_code_point_in_every_context(name: str) -> None:
    for context in ("a{}b ", " {}1", "'{}\n", "{}{}/", "A{}'s", "1{} \r\n{}"):
        for begin in range(0, 0x110000, 0x8000):
            points = (c for c in range(begin, begin + 0x8000) if not 0xD800 <= c < 0xE000)
            text = "".join(context.replace("{}", chr(c)) for c in points)
            assert pretokenize(name, text) == hf_spans(name, text)


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_and_triple_as_a_text_of_its_own(name: str) -> None:
    pairs = itertools.product(LARGE, repeat=2)
    triples = itertools.product(LARGE if EXHAUSTIVE else ALPHABET, repeat=3)
    assert_engines_agree(name, map("".join, (*pairs, *triples)))


@pytest.mark.parametrize("name", HF_NAMES)
def test_every_four_characters_inside_a_text(name: str) -> None:
    text = every_tuple_once(ALPHABET, 4)
    assert len(text) == len(ALPHABET) ** 4
    assert pretokenize(name, text) == hf_spans(name, text)


@pytest.mark.parametrize("name", NAMES)
def test_runs_of_every_length(name: str) -> None:
    runs = [*(c * length for c in ALPHABET for length in range(71)), *RUNS]
    if name in HF_NAMES:
        for run in runs:
            for text in (run, "a" + run, f" {run}\n", run + " 1"):
                assert pretokenize(name, text) == hf_spans(name, text), ascii(text)
    if name in TIKTOKEN_NAMES:
        assert_tiktoken_cuts_alike(name, *runs, *(run + "'s" for run in runs))


@pytest.mark.parametrize("name", NAMES)
def test_contractions_in_every_case(name: str) -> None:
    endings = {"s", "d", "m", "t", "ll", "ve", "re", "\u017f", "x", "l", "v", "lve", "st"}
    cased = {"".join(p) for e in endings for p in itertools.product(*((c, c.upper()) for c in e))}
    texts = [
        before + apostrophe + ending + after
        for before in ("", "a", "A", " ", "1", "!")
        for apostrophe in ("'", "''", "\u2019")
        for ending in sorted(cased)
        for after in ("", "a", " ", "'s")
    ]
    assert_engines_agree(name, texts)


@pytest.mark.parametrize("name", HF_NAMES)
def test_texts_that_begin_or_end_in_the_middle_of_everything(name: str) -> None:
    for text in TEXTS:
        for cut in range(len(text) + 1):
            for part in (text[:cut], text[cut:]):
                assert pretokenize(name, part) == hf_spans(name, part), ascii(part)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=500 if EXHAUSTIVE else 40)
@given(text=st.text(st.sampled_from(LARGE), max_size=40) | st.text(max_size=20))
def test_random_texts(name: str, text: str) -> None:
    assert_engines_agree(name, [text])


@pytest.mark.parametrize("file", FILES)
def test_real_files(file: str) -> None:
    text = data_bytes(f"text/{file}").decode()
    text = text if EXHAUSTIVE else text[-6_000:]
    for name in HF_NAMES:
        assert pretokenize(name, text) == hf_spans(name, text), name
    for name in TIKTOKEN_NAMES:
        assert_tiktoken_cuts_alike(name, text)


@pytest.mark.parametrize("name", NAMES)
def test_pretokens_are_in_order_and_byte_level_rules_lose_nothing(name: str) -> None:
    for text in [*TEXTS, "\ud800a", "\x00\x01\x02a\u0600"]:
        spans = pretokenize(name, text)
        assert all(begin < end for begin, end in spans)
        lost = "".join(text[a:b] for (_, a), (b, _) in itertools.pairwise([(0, 0), *spans]))
        assert not lost or (name.startswith("whitespace") and lost.isspace())


def test_hand_written_examples() -> None:
    def cut(name: str, text: str) -> list[str]:
        return [text[a:b] for a, b in pretokenize(name, text)]

    assert cut("gpt2", "I'm  HE'S 123") == ["I", "'m", " ", " HE", "'", "S", " 123"]
    assert cut("llama3", "I'm  HE'S 1234") == ["I", "'m", " ", " HE", "'S", " ", "123", "4"]
    assert cut("qwen2", "x=12") == ["x", "=", "1", "2"]
    assert cut("o200k", "CamelCase's HTTPServer") == ["Camel", "Case's", " HTTPServer"]
    assert cut("o200k", "x!/\n/y\n \n 1234") == ["x", "!/\n/", "y", "\n \n", " ", "123", "4"]
    assert cut("cl100k", "x!/\n/y\n ") == ["x", "!/\n", "/y", "\n "]
    assert cut("llama3", "x!/\n/y\n ") == ["x", "!/\n", "/y", "\n", " "]
    assert cut("tekken", "it's 12") == ["it", "'s", " ", "1", "2"]
    assert cut("deepseek_v3", "12345中文a_b!C d") == ["123", "45", "中文", "a", "_b", "!C", " d"]
    assert cut("whitespace", "a-b c.") == ["a", "-", "b", "c", "."]
    assert cut("whitespace_split", " a-b  c. ") == ["a-b", "c."]
    assert cut("none", "a b") == ["a b"]
    assert cut("isolate:--", "a---b") == ["a", "--", "-b"]


def test_cl100k_and_llama3_differ_only_in_white_space_at_the_end() -> None:
    texts = ["".join(text) for text in itertools.product(" \n\ra1'", repeat=5)]
    for text in texts:
        kept = text.rstrip()
        tail = text[len(kept) :]
        differ = pretokenize("cl100k", text) != pretokenize("llama3", text)
        line_break = max(tail.rfind("\n"), tail.rfind("\r"))
        # A sign takes the line breaks behind it, so these are not in the run of white space.
        absorbed = len(tail) - len(tail.lstrip("\r\n")) if kept.endswith("'") else 0
        assert differ == (absorbed <= line_break < len(tail) - 1), ascii(text)


# Names, and which rule a file means.


def test_unknown_name_is_refused_with_the_near_ones() -> None:
    with pytest.raises(ValueError, match=r"'llama-3'.*similar: llama3"):
        find_pretokenizer("llama-3")
    for name in ("isolate:", "zzzz", ""):
        with pytest.raises(ValueError, match="similar"):
            pretokenize(name, "text")


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_recognizes_itself(name: str) -> None:
    rule = find_pretokenizer(name)
    assert rule.name == name
    if name != "motifs":  # Made of the vocabulary's own.
        assert recognize_hf_json(rule.hf_json) == name
    if rule.tiktoken_pattern is not None and name != "none":
        assert recognize_tiktoken_pattern(rule.tiktoken_pattern) == name


@pytest.mark.parametrize(
    ("name", "spelling"), [(name, s) for name, spellings in SPELLINGS.items() for s in spellings]
)
def test_other_spellings_mean_the_same(name: str, spelling: str) -> None:
    split = pre_tokenizers.Split(Regex(spelling), "isolated")
    texts = [*TEXTS, *map("".join, itertools.product(ALPHABET, repeat=3))]
    for text in texts:
        assert [span for _, span in split.pre_tokenize_str(text)] == pretokenize(name, text)
    for text, pieces in zip(texts, tiktoken_pieces(spelling, texts), strict=True):
        assert pieces == [text[a:b].encode() for a, b in pretokenize(name, text)]
    assert recognize_tiktoken_pattern(spelling) == name
    assert recognize_hf_json(sequence(split_step(spelling))) == name
    removed = {"behavior": "Removed", "invert": True}
    assert recognize_hf_json(sequence(split_step(spelling) | removed)) == name


def split_step(pattern: str) -> dict[str, Any]:
    """Make a Split step as in tokenizer.json files."""
    pattern_json = {"Regex": pattern}
    return {"type": "Split", "pattern": pattern_json, "behavior": "Isolated", "invert": False}


def sequence(*steps: dict[str, Any], **byte_level: Any) -> dict[str, Any]:
    """Make a Sequence of steps and a ByteLevel that does not split."""
    last = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, **byte_level}
    return {"type": "Sequence", "pretokenizers": [*steps, last]}


def test_sets_may_be_spelled_in_any_order_and_line_breaks_as_themselves() -> None:
    spelled = LLAMA3.replace(r"[^\s\p{L}\p{N}]", r"[^\p{N}\p{L}\s]").replace(r"[\r\n]", "[\n\r]")
    assert spelled != LLAMA3
    assert recognize_hf_json(sequence(split_step(spelled))) == "llama3"
    assert recognize_tiktoken_pattern(spelled) == "llama3"


def test_byte_level_forms_are_distinguished() -> None:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    assert recognize_hf_json(byte_level) == "gpt2"
    assert recognize_hf_json(byte_level | {"use_regex": True}) == "gpt2"
    assert recognize_hf_json(byte_level | {"use_regex": False}) == "none"
    assert recognize_hf_json(byte_level | {"add_prefix_space": True}) is None
    assert recognize_hf_json({"type": "ByteLevel"}) is None
    assert recognize_hf_json(None) == "none"
    assert recognize_hf_json(sequence()) == "none"
    assert recognize_hf_json(sequence({"type": "Whitespace"})) == "whitespace"
    assert is_byte_level(sequence({"type": "Whitespace"}))
    assert not is_byte_level({"type": "Whitespace"})
    assert not is_byte_level(None)


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        sequence(split_step(CL100K)),  # Onig repeats {1,3}+.
        sequence(split_step(LLAMA3), use_regex=True),
        sequence(split_step(LLAMA3), add_prefix_space=True),
        sequence(split_step(LLAMA3) | {"behavior": "Removed"}),
        sequence(split_step(LLAMA3) | {"invert": True, "behavior": "MergedWithNext"}),
        sequence(split_step(LLAMA3) | {"pattern": {"String": ""}}),
        sequence(split_step(LLAMA3) | {"pattern": "a"}),
        sequence(split_step(LLAMA3), split_step(LLAMA3)),
        sequence(split_step(LLAMA3), {"type": "Digits", "individual_digits": True}),
        sequence({"type": "ByteLevel", "add_prefix_space": False}, split_step(LLAMA3)),
        sequence(split_step(r"\w+|[^\w\s]+") | {"behavior": "Removed", "invert": True}),
        split_step(r"(?<!a)b"),
        {"type": "Metaspace"},
        {"type": "Sequence"},
        {},
        ["Whitespace"],
    ],
)
def test_unknown_forms_are_not_recognized(pre_tokenizer: Any) -> None:
    assert recognize_hf_json(pre_tokenizer) is None


def test_unknown_patterns_are_not_recognized() -> None:
    for pattern in ("", "(", r"\p{L}+", LLAMA3.replace("{1,3}", "{1,4}"), "(?<=a)b"):
        assert recognize_tiktoken_pattern(pattern) is None


def test_real_tokenizer_files_are_recognized() -> None:
    found = {
        path: recognize_hf_json(data_json(f"{path}")["pre_tokenizer"])
        for path in (
            "vocab/gpt2/tokenizer.json.xz",
            "vocab/llama3/tokenizer.json.xz",
            "vocab/qwen/qwen3_tokenizer.json.xz",
            "vocab/deepseek_v3/tokenizer.json.xz",
            "dna_vocab/dnabert2/tokenizer.json",
            "dna_vocab/gena_lm_t2t_32k/tokenizer.json",
            "dna_vocab/gpn/tokenizer.json",
        )
    }
    expected = "gpt2 llama3 qwen2 deepseek_v3 whitespace isolate:- whitespace".split()
    assert list(found.values()) == expected


def test_published_patterns_are_recognized() -> None:
    encodings = data_json("vocab/llm_encodings.json")
    found = {
        k: recognize_tiktoken_pattern(v["pat_str"]) for k, v in encodings.items() if "pat_str" in v
    }
    gpt2 = dict.fromkeys(("gpt2", "r50k_base", "p50k_base"), "gpt2")
    o200k = dict.fromkeys(("o200k_base", "o200k_harmony"), "o200k")
    others = {"cl100k_base": "cl100k", "llama3": "llama3", "qwen": "qwen2", "tekken": "tekken"}
    assert found == gpt2 | o200k | others


# What patterns may be made of.


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a", "a)", "*a", "a**", "a*?", "a{,3}", ".", "^a", "[]a]", "[[:alpha:]]", "[a&&b]"),
        *(r"\d", r"\p{Han}", r"\u0041", r"\é", "[a-]", "[-a]", "(?=a)", "(?i:[a-z])", "(?i:k)"),
        *(r"(?i:é)", r"[\p{L}-z]", r"\s-x$+", "a|*", "(+)"),
    ],
)
def test_uncertain_syntax_is_refused(pattern: str) -> None:
    for engine in ("rust", "onig"):
        with pytest.raises(
            ValueError, match=r"disagree|supported|without|ignoring|plain|class|contractions"
        ):
            compile_patterns((pattern,), engine)


def test_syntax_that_onig_reads_in_another_way_is_refused_for_it() -> None:
    assert fingerprint(r"\p{N}{1,3}+", "rust") != fingerprint(r"\p{N}{1,3}", "rust")
    for pattern in (r"\p{N}{1,3}+", "a$", r"\s+$"):
        with pytest.raises(ValueError, match="disagree"):
            compile_patterns((pattern,), "onig")
    split = pre_tokenizers.Split(Regex(r"\p{N}{1,3}+"), "isolated")
    assert len(split.pre_tokenize_str("1234567")) == 1


def test_too_many_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 63"):
        compile_patterns(("".join(map(chr, range(0x100, 0x140))),), "rust")
    assert compile_patterns(("[\u0100-\u013f]",), "rust").patterns[0].fullmatch(b"\x01")
