"""tokenizer.json documents as fastokens reads them, in the patterns that it knows by heart."""

from __future__ import annotations

import json
from dataclasses import replace

from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import find_pretokenizer


def make_readable(vocabulary: Vocabulary) -> Vocabulary:
    """Leave out what fastokens refuses and no text's own ids need.

    That is a token that spells nothing (Whisper's), and RoBERTa's begin and end tokens.
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
    """A tokenizer.json with the patterns of its rule as fastokens knows them by heart.

    Args:
        document: the tokenizer.json.
        ours: the pretokenizer whose patterns are in it.
        spelling: the pretokenizer whose patterns are to be in it.
    """
    if ours == "deepseek_v3":
        known = [_as_published(pattern) for pattern in _patterns(ours)]
    elif spelling != ours:
        known = _patterns(spelling)
    else:
        return document
    for pattern, published in zip(_patterns(ours), known, strict=True):
        # With the quotes of JSON around it: no token's text can look like that.
        document = document.replace(_in_json(pattern), _in_json(published), 1)
    return document


def _patterns(name: str) -> list[str]:
    rule = find_pretokenizer(name).hf_json
    assert rule is not None
    return [step["pattern"]["Regex"] for step in rule["pretokenizers"] if "pattern" in step]


def _as_published(pattern: str) -> str:
    """DeepSeek's file has line breaks and quotes themselves where ours has escapes."""
    return pattern.replace(r"\r", "\r").replace(r"\n", "\n").replace(r"\"", '"')


def _in_json(pattern: str) -> str:
    return '{"Regex":' + json.dumps(pattern, ensure_ascii=False) + "}"
