"""Bounds the memory and time that the Hugging Face library needs for a tokenizer.json.

Without bounds, a file's normalizers could expand a word to gigabytes and its WordPiece model could
search for days, which would stop the service.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.huggingface.pipeline import steps_of
from vocabularies.model.checks import MAX_GROWTH, TOO_LONG, max_growth
from vocabularies.preprocessing.normalizers import compile_replacement

MAX_WORD = 1_000  # The length of the longest word that WordPiece splits; 100 in all known files.


def check_bounds(document: Mapping[str, Any]) -> None:
    """Refuse a document for which the library might need too much memory or time.

    Raises:
        VocabularyError: some steps have no bound; the error lists the place of each.
    """
    findings = [*_growing(document, "normalizer"), *_growing(document, "decoder")]
    most = document["model"].get("max_input_chars_per_word")
    if isinstance(most, int) and most > MAX_WORD:
        message = f"{most}; words of more than {MAX_WORD} letters take too long"
        findings.append(Finding("model.max_input_chars_per_word", message))
    if findings:
        raise VocabularyError(findings)


def _growing(document: Mapping[str, Any], name: str) -> Iterator[Finding]:
    total = 1
    for where, step in steps_of(document.get(name), f"{name}s", name):
        total *= _growth(where, step)
        if total > MAX_GROWTH:
            yield Finding(where, TOO_LONG)
            return


def _growth(where: str, step: Mapping[str, Any]) -> int:
    """Return the most bytes to which a step expands one byte; 1 for steps that Unicode bounds."""
    match step:
        case {"type": "Replace", "pattern": {"String": str(literal)}, "content": str(content)}:
            return max_growth(literal, content)
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(content)}:
            return max_growth("x" if _never_matches_empty(pattern) else "", content)
        case {"type": "Replace", "content": str(content)}:
            return max_growth("", content)
        case {"type": "Prepend", "prepend": str(content)}:
            return max_growth("", content)
        case {"type": "ByteLevel"}:
            return 2
        case {"type": "Precompiled", "precompiled_charsmap": str(charsmap)}:
            return _longest(where, charsmap)
    return 1


def _never_matches_empty(pattern: str) -> bool:
    """Return whether a regular expression certainly never matches the empty string."""
    try:
        compile_replacement(pattern)
    except ValueError:
        return False
    return True


def _longest(where: str, charsmap: str) -> int:
    """Return the number of bytes of the longest replacement in a charsmap.

    A charsmap is the 32-bit size of a trie, the trie, and the replacements, each ended by a NUL.

    Raises:
        VocabularyError: the trie is shorter than its stated size, which the library would allocate.
    """
    try:
        data = b64decode(charsmap, validate=True)
    except (binascii.Error, ValueError) as error:
        raise VocabularyError.at(where, f"precompiled_charsmap is not base64: {error}") from error
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 + size:
        message = f"precompiled_charsmap has {len(data)} bytes; its trie needs {4 + size}"
        raise VocabularyError.at(where, message)
    return max(1, *map(len, data[4 + size :].split(b"\0")))
