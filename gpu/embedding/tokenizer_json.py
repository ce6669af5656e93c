"""What a tokenizer of Hugging Face says of itself that texts to try might not show.

Knows the form of tokenizer.json only, neither rules nor how the tokenizer is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["pattern_fault"]

# Each looks at one character, of ASCII, or at a run of characters of one kind.
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
"""A regular expression that takes one character, or one kind of character up to 32 times."""


def pattern_fault(tokenizer: Any) -> str:
    """Why a tokenizer may take several letters at once that no test shows; "" where it may not.

    A tokenizer that does not describe itself has no fault here. Known steps look at one character
    at a time, and a pattern of one sign shows in single characters, pairs or runs. A longer
    pattern, such as AUG, is found in few texts, and a charsmap or a step in Python may hold any.
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
            return f"its normalizer {_shown(step)} may rewrite several letters at once"
    for step in _steps(parts.get("pre_tokenizer"), "pretokenizers"):
        if step["type"] not in _PRETOKENIZERS and not _splits_harmlessly(step, parts):
            return f"its pretokenizer {_shown(step)} may take several letters at once"
    return ""


def _steps(step: dict[str, Any] | None, within: str) -> Iterator[dict[str, Any]]:
    """A step, or those of a sequence of steps, one after the other."""
    if step is not None and step["type"] == "Sequence":
        for part in step[within]:
            yield from _steps(part, within)
    elif step is not None:
        yield step


def _takes_one_sign(step: dict[str, Any]) -> bool:
    if step["type"] not in ("Replace", "Split"):
        return False
    pattern: dict[str, str] = step["pattern"]
    content: str = step.get("content", "")
    # A letter that others stand for would hide them in the strings of the vocabulary.
    if not content.replace("\u2581", "").isascii():
        return False
    if "String" in pattern:
        return len(pattern["String"]) <= 1
    return bool(_ONE_SIGN.fullmatch(pattern["Regex"]))


def _splits_harmlessly(step: dict[str, Any], parts: dict[str, Any]) -> bool:
    """Whether the pieces do not matter, for each token is a character, or show in short texts."""
    if step["type"] != "Split":
        return False
    if _takes_one_sign(step):
        return True
    model = parts["model"]
    named = {token["content"] for token in parts["added_tokens"]} | {model.get("unk_token")}
    if step["behavior"] == "Removed" or model["type"] != "BPE":
        return False
    return all(len(token) == 1 for token in model["vocab"] if token not in named)


def _shown(step: dict[str, Any]) -> str:
    pattern = step.get("pattern")
    name: str = step["type"]
    if not isinstance(pattern, dict):
        return name
    (text,) = pattern.values()
    return f"{name}({text[:40] + '...' if len(text) > 40 else text!r})"
