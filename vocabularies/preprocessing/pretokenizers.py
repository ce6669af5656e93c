r"""The named pretokenizers, as part of the reference, in plain Python.

Each rule is the published pattern, matched with the Unicode classes of the published regex engines.
This module does not depend on ids, files or special tokens.

A pattern is matched repeatedly, each time from the end of the last match. Text that no alternative
matches is a pretoken in byte-level rules, and is dropped by white-space rules.

cl100k is not llama3: at the end of a text ``\s++$`` matches all of the white space, while
``\s*[\r\n]+`` matches it up to its last line break. "a\n " is split into "a" and "\n " by cl100k,
and into "a", "\n" and " " by llama3. The pattern that tiktoken before 0.8 and tokenizer.json files
use for cl100k is named llama3 here.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, AnyStr

from vocabularies.preprocessing.class_patterns import ClassPatterns, compile_patterns, fingerprint
from vocabularies.preprocessing.motif_pretokenizer import MOTIFS, split_at_motifs
from vocabularies.preprocessing.published_patterns import (
    CL100K,
    DEEPSEEK_V3,
    GPT2,
    LLAMA3,
    O200K,
    QWEN2,
    SPELLINGS,
    TEKKEN,
    WHITESPACE,
    WHITESPACE_SPLIT,
)
from vocabularies.preprocessing.unicode_classes import Engine

ISOLATE = "isolate:"
KEPT = [("Removed", True)]  # The (behavior, invert) of a lone Split step that keeps its matches.


@dataclass(frozen=True, slots=True)
class Pretokenizer:
    """A rule that splits a text into pretokens, which merges never cross.

    Attributes:
        name: the rule's name, as in `VocabularyFields.pretokenizer`.
        meaning: one sentence that explains to people where it splits.
        hf_json: the equivalent "pre_tokenizer" of a tokenizer.json file; for motifs,
            `formats.huggingface.motif_pattern` makes it.
        tiktoken_pattern: the equivalent pat_str of tiktoken; None if there is none.
        patterns: the patterns, applied one after the other; each one splits the pieces of the one
            before.
        keeps_unmatched: whether text that no pattern matches is a pretoken (True) or dropped
            (False).
    """

    name: str
    meaning: str
    hf_json: Mapping[str, Any] | None
    tiktoken_pattern: str | None
    patterns: tuple[str, ...]
    keeps_unmatched: bool = True


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _split(kind: str, pattern: str) -> dict[str, Any]:
    behavior = {"behavior": "Isolated", "invert": False}
    return {"type": "Split", "pattern": {kind: pattern}, **behavior}


def _byte_level_rule(name: str, meaning: str, *patterns: str) -> Pretokenizer:
    """Make a rule from Split steps before ByteLevel; ``{1,3}+`` is written without the ``+``.

    Onig reads the ``+`` as a repetition of ``{1,3}``, whereas other engines read a possessive
    quantifier.
    """
    splits = [_split("Regex", pattern.replace("{1,3}+", "{1,3}")) for pattern in patterns]
    steps = [*splits, _byte_level(use_regex=False)]
    tiktoken_pattern = patterns[0] if len(patterns) == 1 else None
    hf_json = {"type": "Sequence", "pretokenizers": steps}
    return Pretokenizer(name, meaning, hf_json, tiktoken_pattern, patterns)


_RULES = (
    Pretokenizer(
        "gpt2",
        "Words, numbers, other signs, each with a space before it; lower-case contractions apart.",
        _byte_level(use_regex=True),
        GPT2,
        (GPT2,),
    ),
    _byte_level_rule(
        "cl100k",
        "Words with the sign before them, up to three digits, signs with line breaks after them; "
        "white space at the text's end stays whole.",
        CL100K,
    ),
    _byte_level_rule(
        "o200k",
        "As llama3, but words also end before a capital and keep their contraction and marks.",
        O200K,
    ),
    _byte_level_rule(
        "llama3",
        "As cl100k, but white space at the text's end is cut behind its last line break.",
        LLAMA3,
    ),
    _byte_level_rule("qwen2", "As llama3, but every digit is apart.", QWEN2),
    _byte_level_rule(
        "deepseek_v3",
        "Up to three digits, then Chinese and Japanese stretches, then words and signs.",
        *DEEPSEEK_V3,
    ),
    _byte_level_rule("tekken", "As o200k, but every digit and every contraction is apart.", TEKKEN),
    Pretokenizer(
        "whitespace",
        "Runs of word characters and runs of other signs; white space is dropped.",
        {"type": "Whitespace"},
        WHITESPACE,
        (WHITESPACE,),
        keeps_unmatched=False,
    ),
    Pretokenizer(
        "whitespace_split",
        "The words between white space; white space is dropped.",
        {"type": "WhitespaceSplit"},
        WHITESPACE_SPLIT,
        (WHITESPACE_SPLIT,),
        keeps_unmatched=False,
    ),
    Pretokenizer(
        MOTIFS, "Motifs, leftmost and longest, and the texts between them.", None, None, ()
    ),
    Pretokenizer("none", "The whole text is one pretoken.", None, r"[\s\S]+", ()),
)

PRETOKENIZERS: Mapping[str, Pretokenizer] = MappingProxyType({rule.name: rule for rule in _RULES})


def find_pretokenizer(name: str) -> Pretokenizer:
    """Return the rule with a name; ``isolate:-`` is the rule that makes every "-" a pretoken.

    Raises:
        ValueError: there is no such rule; the message lists similar names.
    """
    if name in PRETOKENIZERS:
        return PRETOKENIZERS[name]
    literal = name.removeprefix(ISOLATE)
    if name.startswith(ISOLATE) and literal:
        meaning = f"Every {literal!r} is a pretoken, and so is what stands between two of them."
        return Pretokenizer(name, meaning, _split("String", literal), None, ())
    near = difflib.get_close_matches(name, PRETOKENIZERS, n=3, cutoff=0.5) or [*PRETOKENIZERS]
    raise ValueError(
        f"no pretokenizer is called {name!r}; similar: {', '.join(near)}, {ISOLATE}<literal>"
    )


def pretokenize(name: str, text: str, motifs: tuple[str, ...] = ()) -> list[tuple[int, int]]:
    """Split a text into pretokens: (begin, end) in characters, in order, none empty.

    Only the rule "motifs" uses the vocabulary's motifs.

    Raises:
        ValueError: there is no such rule.
    """
    rule = find_pretokenizer(name)
    spans = [(0, len(text))] if text else []
    if name == MOTIFS:
        return list(split_at_motifs(text, motifs))
    if name.startswith(ISOLATE):
        literal = re.compile(re.escape(name.removeprefix(ISOLATE)))
        return list(_pieces(literal, text, 0, len(text), keep=True))
    if not rule.patterns:
        return spans
    compiled = _compiled(name)
    cells = compiled.to_cells(text)
    for pattern in compiled.patterns:
        keep = rule.keeps_unmatched
        spans = [
            piece for begin, end in spans for piece in _pieces(pattern, cells, begin, end, keep)
        ]
    return spans


@functools.cache
def _compiled(name: str) -> ClassPatterns:
    return compile_patterns(PRETOKENIZERS[name].patterns, "rust")


def _pieces(
    pattern: re.Pattern[AnyStr], text: AnyStr, begin: int, end: int, keep: bool
) -> Iterator[tuple[int, int]]:
    """Yield the matches between begin and end and, with `keep`, the unmatched text between them.

    The pattern treats `end` as the end of the text.
    """
    last = begin
    for match in pattern.finditer(text, begin, end):
        first, past = match.span()
        if keep and last < first:
            yield last, first
        yield first, past
        last = past
    if keep and last < end:
        yield last, end


def recognize_tiktoken_pattern(pat_str: str) -> str | None:
    """Return the rule that is equivalent to a tiktoken pattern; None if there is none."""
    return _rule_of((pat_str,), "rust")


def is_published_pattern(pattern: str) -> bool:
    """Return whether a rule uses a pattern, in any spelling, for a Split step of tokenizer.json."""
    try:
        return fingerprint(pattern, "onig") in _published()
    except ValueError:
        return False


@functools.cache
def _published() -> frozenset[str]:
    return frozenset(chain.from_iterable(_known("onig")))


def recognize_hf_json(pre_tokenizer_json: Mapping[str, Any] | None) -> str | None:
    """Return the rule that is equivalent to a "pre_tokenizer"; None if there is none.

    `is_byte_level` returns whether the step also converts pretokens to the byte-level alphabet.
    """
    steps = _steps(pre_tokenizer_json)
    if steps and steps[-1].get("type") == "ByteLevel":
        byte_level = steps.pop()
        if byte_level.get("add_prefix_space") is not False:
            return None
        if byte_level.get("use_regex", True):
            return None if steps else "gpt2"
    if not steps:
        return "none"
    for name in ("whitespace", "whitespace_split"):
        if steps == [PRETOKENIZERS[name].hf_json]:
            return name
    return _split_rule(steps)


def is_byte_level(pre_tokenizer_json: Mapping[str, Any] | None) -> bool:
    """Return whether a "pre_tokenizer" converts pretokens to the byte-level alphabet at its end."""
    steps = _steps(pre_tokenizer_json)
    return bool(steps) and steps[-1].get("type") == "ByteLevel"


def _steps(pre_tokenizer: Any) -> list[Mapping[str, Any]]:
    """Flatten the steps of a pre_tokenizer."""
    if pre_tokenizer is None:
        return []
    if not isinstance(pre_tokenizer, Mapping):
        return [{}]
    if pre_tokenizer.get("type") != "Sequence":
        return [pre_tokenizer]
    parts = pre_tokenizer.get("pretokenizers")
    return [step for part in parts for step in _steps(part)] if isinstance(parts, list) else [{}]


def _split_rule(steps: list[Mapping[str, Any]]) -> str | None:
    """Find the rule of Split steps; "Removed" with "invert" keeps the matches of the pattern."""
    if any(step.get("type") != "Split" for step in steps):
        return None
    are_isolated = all(step.get("behavior") == "Isolated" for step in steps)
    is_kept = [(step.get("behavior"), bool(step.get("invert"))) for step in steps] == KEPT
    patterns = [step.get("pattern") for step in steps]
    match patterns:
        case [{"String": str(literal)}] if literal and are_isolated:
            return ISOLATE + literal
        case _ if are_isolated or is_kept:
            regexes = [p.get("Regex") for p in patterns if isinstance(p, Mapping)]
            known = [regex for regex in regexes if isinstance(regex, str)]
            return _rule_of(tuple(known), "onig") if len(known) == len(steps) else None
    return None


def _rule_of(patterns: tuple[str, ...], engine: Engine) -> str | None:
    try:
        return _known(engine).get(tuple(fingerprint(pattern, engine) for pattern in patterns))
    except ValueError:
        return None


@functools.cache
def _known(engine: Engine) -> Mapping[tuple[str, ...], str]:
    """Return {fingerprints: rule} of every spelling of a rule in the engine's syntax."""
    spellings = [(rule.name, rule.patterns) for rule in _RULES if engine == "rust"]
    spellings += [(name, (spelling,)) for name, known in SPELLINGS.items() for spelling in known]
    for rule in _RULES if engine == "onig" else ():
        splits = [step["pattern"] for step in _steps(rule.hf_json) if step["type"] == "Split"]
        spellings.append((rule.name, tuple(split["Regex"] for split in splits)))
    return {
        tuple(fingerprint(pattern, engine) for pattern in patterns): name
        for name, patterns in spellings
        if patterns
    }
