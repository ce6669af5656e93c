"""Puts texts in NFC before they are encoded, where that leaves their special tokens as they are.

A text is split at its special tokens first, and NFC composes each part by itself. So the composed
parts and the tokens between them, put together, have the ids of the text, if the same tokens are
matched in them.

Example: in the text "e U+0301 <s> U+0338" the letter is composed, and the > of the token <s> is
not, although > and U+0338 compose to U+226F elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers.normalizers import NFC

from gpu.text.nfc_check import only_composes
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

NOTHING = re.compile("(?!)")


class Composer:
    """The texts of a vocabulary in NFC, if that is its normalizer.

    The library's NFC is the reference's: Python's has the tables of another version of Unicode.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.is_needed = only_composes(vocabulary)
        tokens = [token for token in vocabulary.special_tokens if token.matched and token.content]
        self._nfc = NFC()
        self._tokens = {
            False: _pattern(token.content for token in tokens),
            True: _pattern(token.content for token in tokens if not token.special),
        }
        # These are matched in the composed text of several parts at once.
        self._later = [token.content for token in tokens if token.normalized]

    def compose(self, batch: Batch, plain: bool) -> dict[int, str]:
        """Return the rows whose ids are those of a text in NFC, and that text.

        Args:
            batch: the rows.
            plain: special tokens are text, and only other added tokens are matched.
        """
        if not self.is_needed:
            return {}
        texts, errors = batch.texts()
        composed = {
            row: self._compose(text, self._tokens[plain])
            for row, text in enumerate(texts)
            if row not in errors
        }
        return {row: text for row, text in composed.items() if text is not None}

    def _compose(self, text: str, tokens: re.Pattern[str]) -> str | None:
        """Return the text with its parts in NFC; None: other tokens would be matched in it."""
        parts = tokens.split(text)
        parts[::2] = map(self._nfc.normalize_str, parts[::2])
        composed = "".join(parts)
        if any(token in text or token in composed for token in self._later):
            return None
        return composed if tokens.split(composed) == parts else None


def _pattern(contents: Iterable[str]) -> re.Pattern[str]:
    """Match the first of some strings, and the longest of those that begin there."""
    longest_first = sorted(set(contents), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else NOTHING
