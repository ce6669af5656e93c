"""Makes texts that show whether the ids of a tokenizer follow a rule.

`tokenizer_discovery` encodes the texts with the tokenizer and compares ids. This module uses rules
and strings only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

from gpu.embedding.letter_rule import LetterRule

SELF_TEST = "ACGTNacgtN"
DNA = "ACGT"
_FLANKS = " \n.-"
"""Characters beside the bases at which many tokenizers split."""

_BATCH = 4_096
"""Texts that are encoded at once; a smaller batch ends sooner at the first difference."""

_JOINED = 2_048
"""Characters of a joined text; tokenizers that merge are slow on longer ones."""

_WRITTEN = {256 + byte: byte for byte in range(33)} | {289: 127, 0x2581: 32}
"""The white-space and control characters that some vocabularies represent by other characters.

The keys are the characters of byte-level vocabularies, and that of SentencePiece for a space.
"""


def make_short_texts(rule: LetterRule) -> list[str]:
    """Make the self-test, every pair of characters with a code, long runs and random sequences.

    Pairs of characters reveal a tokenizer that merges pairs, because it first merges two
    characters. A run of 64 characters reveals a pattern that matches one sign up to 32 times. These
    texts do not reveal a step that matches three or more different characters at once:
    `make_string_texts` tests the strings of the vocabulary, and `tokenizer_json` refuses longer
    patterns.
    """
    covered = _covered_characters(rule)
    texts = [SELF_TEST, "", *covered]
    texts += [a + "".join(b + a for b in covered) for a in covered]
    texts += [letter * 64 for letter in covered]
    alphabets = [
        "".join(filter(covered.__contains__, letters))
        for letters in ("ACGTN", "ACGUN", "acgtn", "ACGT" * 8 + "N")
    ]
    sizes = [*range(1, 20), 100, 511, 2048]
    for alphabet in dict.fromkeys(filter(None, [*alphabets, covered])):
        texts += [make_random_text(alphabet, size, size) for size in sizes]
    return texts


def make_random_text(alphabet: str, length: int, seed: int) -> str:
    """Make a text of random characters of an alphabet; the same seed gives the same text."""
    return "".join(random.Random(seed).choices(alphabet, k=length))


def _covered_characters(rule: LetterRule) -> str:
    """Return the ASCII characters that have a code."""
    return "".join(chr(byte) for byte in range(128) if rule.covers[byte])


def list_vocabulary_strings(tokenizer: Any) -> list[str]:
    """List the strings of a tokenizer's vocabulary as they occur in texts; empty if it lists none.

    They come from `get_vocab()`, from tiktoken's `token_byte_values()` or from a mapping `vocab`.
    """
    texts = (
        token.decode(errors="replace") if isinstance(token, bytes) else token
        for token in _vocabulary_tokens(tokenizer)
    )
    return [text.translate(_WRITTEN) for text in texts if isinstance(text, str)]


def _vocabulary_tokens(tokenizer: Any) -> Iterable[Any]:
    for name in ("get_vocab", "token_byte_values", "vocab"):
        listed = getattr(tokenizer, name, None)
        try:
            tokens = listed() if callable(listed) else listed
        except Exception:  # Foreign code: a method of that name may do something else.
            continue
        if isinstance(tokens, Iterable):
            return tokens
    return ()


def make_string_texts(rule: LetterRule, strings: Iterable[str]) -> Iterator[list[str]]:
    """Make batches of texts from all strings of a vocabulary whose characters have codes.

    Each string is a text by itself, because a tokenizer may look up a whole row at once. It also
    occurs between letters, signs and white space in longer texts. If the rule has words, it occurs
    at every distance from the begin of a word.
    """
    covered = _covered_characters(rule)
    whole = list(_whole_strings(rule, covered, strings))
    yield from ([*whole[i : i + _BATCH]] for i in range(0, len(whole), _BATCH))
    flanks = [*DNA, *filter(covered.__contains__, _FLANKS)]
    for number, flank in enumerate(flanks if rule.word_ids is None else DNA[:2]):
        for phase in range(rule.stride):
            # Runs of one to three flanks put the strings at changing places.
            yield from _joined_texts(whole, flank * (1 + number % 3), rule.stride, phase)


def _whole_strings(rule: LetterRule, covered: str, strings: Iterable[str]) -> Iterator[str]:
    """Yield the runs of covered characters, and of letters, in all strings and in either case.

    Runs do not contain marks: ##ACG and ACG</w> give ACG. Single characters and words of k letters
    are omitted, because other texts test them.
    """
    run_of_covered = re.compile(f"[{re.escape(covered)}]{{2,}}")
    run_of_letters = re.compile("[A-Za-z]{2,}")
    cased = (case for text in strings for case in (text, text.lower(), text.upper()))
    runs = (run for text in cased for run in run_of_covered.findall(text))
    unique = dict.fromkeys(text for run in runs for text in (run, *run_of_letters.findall(run)))
    return (text for text in unique if rule.word_ids is None or len(text) != rule.k)


def _joined_texts(strings: list[str], flank: str, stride: int, phase: int) -> Iterator[list[str]]:
    """Yield batches of texts of strings between flanks; strings begin at phase modulo stride."""
    batch = []
    text = ""
    for string in strings:
        text += flank
        text += flank[0] * ((phase - len(text)) % stride) + string
        if len(text) > _JOINED:
            batch.append(text + flank)
            text = ""
        if len(batch) == _BATCH // 64:
            yield batch
            batch = []
    yield [*batch, text + flank]
