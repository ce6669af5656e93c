"""Finds patterns in a tokenizer.json that may match several letters at once.

The texts of `probe_texts` may not reveal such patterns. This module depends only on the format of
tokenizer.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# Each of these steps reads one ASCII character, or a run of characters of one kind.
_NORMALIZERS = frozenset(
    "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Prepend Strip StripAccents".split()
)
_PRETOKENIZERS = frozenset(
    "BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation"
    " UnicodeScripts Whitespace WhitespaceSplit".split()
)
_SIGN = (
    r"(?:[^\\\[\](){}|*+?^$]|\\[pP](?:\w|\{\^?\w+\})|\\[dDhHnrsStwWvf]|\\[^A-Za-z0-9]"
    r"|\[\^?(?:[^\\\[\]&]|\\[pP]\{\^?\w+\}|\\[dDhHnrsStwWvf]|\\[^A-Za-z0-9])+\])"
)
_TIMES = r"(?:(?:[*+?]|\{(?:[12]?\d|3[0-2])?(?:,(?:[12]?\d|3[0-2])?)?\})[?+]?)?"
_ONE_SIGN = re.compile(rf"(?:\(\?[ms]+\))?(?:{_SIGN}{_TIMES}(?:\|{_SIGN}{_TIMES})*)?")
"""Matches regular expressions for one character, or for one kind of character up to 32 times."""


def find_pattern_fault(tokenizer: Any) -> str:
    """Describe a step that may match several letters at once although no probe text shows it.

    Returns "" if there is none, and for a tokenizer without `to_str`. Known steps read one
    character at a time, and single characters, pairs and runs reveal a pattern of one sign. A
    longer pattern, such as AUG, occurs in few texts; a charsmap or a step in Python may contain any
    pattern.
    """
    whole = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not callable(to_str := getattr(whole, "to_str", None)):
        return ""
    try:
        parts = json.loads(to_str())
    except Exception:  # A bare Exception is what tokenizers raises for parts in Python.
        return "it has parts that it does not describe"
    for step in _steps(parts.get("normalizer"), "normalizers"):
        if step["type"] not in _NORMALIZERS and not _takes_one_sign(step):
            return f"its normalizer {_describe(step)} may rewrite several letters at once"
    for step in _steps(parts.get("pre_tokenizer"), "pretokenizers"):
        if step["type"] not in _PRETOKENIZERS and not _splits_harmlessly(step, parts):
            return f"its pretokenizer {_describe(step)} may take several letters at once"
    return ""


def _steps(step: dict[str, Any] | None, within: str) -> Iterator[dict[str, Any]]:
    """Yield a step, or those of a sequence of steps in their order."""
    if step is not None and step["type"] == "Sequence":
        for part in step[within]:
            yield from _steps(part, within)
    elif step is not None:
        yield step


def _takes_one_sign(step: dict[str, Any]) -> bool:
    """Return whether a step's pattern matches one character, or one kind of character."""
    if step["type"] not in ("Replace", "Split"):
        return False
    pattern: dict[str, str] = step["pattern"]
    content: str = step.get("content", "")
    # Content outside of ASCII may represent letters, which the vocabulary's strings would not
    # reveal.
    if not content.replace("\u2581", "").isascii():
        return False
    if "String" in pattern:
        return len(pattern["String"]) <= 1
    return bool(_ONE_SIGN.fullmatch(pattern["Regex"]))


def _splits_harmlessly(step: dict[str, Any], parts: dict[str, Any]) -> bool:
    """Return whether a split changes no ids, or whether short texts would reveal the change.

    Short texts reveal a split at one character. Other splits change no ids if every token is one
    character.
    """
    if step["type"] != "Split":
        return False
    if _takes_one_sign(step):
        return True
    model = parts["model"]
    named = {token["content"] for token in parts["added_tokens"]} | {model.get("unk_token")}
    if step["behavior"] == "Removed" or model["type"] != "BPE":
        return False
    return all(len(token) == 1 for token in model["vocab"] if token not in named)


def _describe(step: dict[str, Any]) -> str:
    """Return a step's type and the begin of its pattern."""
    pattern = step.get("pattern")
    name: str = step["type"]
    if not isinstance(pattern, dict):
        return name
    (text,) = pattern.values()
    return f"{name}({text[:40] + '...' if len(text) > 40 else text!r})"
