"""Rewrites tokenizer.json documents so that fastokens reads them and recognizes the patterns."""

from __future__ import annotations

import json
from dataclasses import replace

from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import find_pretokenizer


def make_readable(vocabulary: Vocabulary) -> Vocabulary:
    """Drop tokens that fastokens refuses: empty ones (Whisper), and RoBERTa's begin and end tokens.

    The ids of a text itself do not need them.
    """
    if b"" not in vocabulary.tokens and "cls" not in vocabulary.roles:
        return vocabulary
    return replace(
        vocabulary,
        tokens=tuple(token or None for token in vocabulary.tokens),
        special_tokens=tuple(token for token in vocabulary.special_tokens if token.content),
        prefix=(),
        suffix=(),
    )


def respell(document: str, ours: str, spelling: str) -> str:
    """Replace the patterns of a tokenizer.json by those of a rule that fastokens recognizes.

    Args:
        document: the tokenizer.json.
        ours: the pretokenizer whose patterns are in it.
        spelling: the pretokenizer whose patterns are to be in it.
    """
    if ours == "deepseek_v3":
        published = [_as_published(pattern) for pattern in _patterns(ours)]
    elif spelling != ours:
        published = _patterns(spelling)
    else:
        return document
    for before, after in zip(_patterns(ours), published, strict=True):
        # No token's text can contain the pattern with JSON's quotes around it.
        document = document.replace(_in_json(before), _in_json(after), 1)
    return document


def _patterns(name: str) -> list[str]:
    rule = find_pretokenizer(name).hf_json
    assert rule is not None
    return [step["pattern"]["Regex"] for step in rule["pretokenizers"] if "pattern" in step]


def _as_published(pattern: str) -> str:
    """Write a pattern as in DeepSeek's file, which has line breaks and quotes without escapes."""
    return pattern.replace(r"\r", "\r").replace(r"\n", "\n").replace(r"\"", '"')


def _in_json(pattern: str) -> str:
    return '{"Regex":' + json.dumps(pattern, ensure_ascii=False) + "}"
