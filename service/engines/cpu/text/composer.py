"""Converts texts to NFC before they are encoded, if this does not change their special tokens.

The reference splits a text at its special tokens, and applies NFC to each part. So a text that
joins the composed parts and the tokens between them has the same ids, if the same tokens are
matched in it.

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
    """Converts the texts of a vocabulary to NFC, if NFC is its normalizer.

    It uses the NFC of the library, like the reference; Python's NFC has another version of Unicode.
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
        """Return the numbers of the rows that may be encoded in NFC, and the NFC text of each.

        Args:
            batch: the rows.
            plain: whether special tokens are text, so that only other added tokens are matched.
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
        """Return the text with its parts in NFC; None if other tokens would be matched in it."""
        parts = tokens.split(text)
        parts[::2] = map(self._nfc.normalize_str, parts[::2])
        composed = "".join(parts)
        if any(token in text or token in composed for token in self._later):
            return None
        return composed if tokens.split(composed) == parts else None


def _pattern(contents: Iterable[str]) -> re.Pattern[str]:
    """Make a pattern that matches the first of some strings, and the longest one at a position."""
    longest_first = sorted(set(contents), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else NOTHING
