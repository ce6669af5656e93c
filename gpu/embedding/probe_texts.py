"""The texts that show whether a tokenizer does what a rule of letters or words says.

Knows rules and strings only: `tokenizer_discovery` asks the tokenizer, `tokenizer_json` reads what
it says of itself.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

from gpu.embedding.letter_rule import ELSEWHERE, LetterRule

__all__ = ["DNA", "SELF_TEST", "known_strings", "random_text", "short_tests", "string_tests"]

SELF_TEST = "ACGTNacgtN"
DNA = "ACGT"
_FLANKS = " \n.-"  # Beside the bases: what many tokenizers cut at.
_BATCH = 4_096  # Texts asked for at once, so that the first fault ends it soon.
_JOINED = 2_048  # Characters of a joined text: what merges takes long for a long one.
# How byte-level vocabularies write white space and control characters, and SentencePiece's a space.
_WRITTEN = {256 + byte: byte for byte in range(33)} | {289: 127, 0x2581: 32}


def short_tests(rule: LetterRule) -> list[str]:
    """The known text; every pair of characters with a code; long runs; random sequences.

    What merges by a list of pairs merges two characters first, so that a pair shows it; a pattern
    of one sign that is repeated up to 32 times shows in a run of a character that it takes. What
    takes three or more characters at once shows in neither: `string_tests` asks for the strings
    of the vocabulary, and `tokenizer_json` refuses longer patterns.
    """
    covered = _covered(rule)
    texts = [SELF_TEST, "", *covered]
    texts += [a + "".join(b + a for b in covered) for a in covered]
    texts += [letter * 64 for letter in covered]
    few = ("".join(filter(covered.__contains__, few)) for few in ("ACGTN", "ACGUN", "acgtn"))
    for alphabet in dict.fromkeys(filter(None, (*few, covered))):
        texts += [random_text(alphabet, size, size) for size in (*range(1, 20), 100, 511, 2048)]
    return texts


def random_text(alphabet: str, length: int, seed: int) -> str:
    """Characters of an alphabet, the same ones for the same seed."""
    return "".join(random.Random(seed).choices(alphabet, k=length))


def _covered(rule: LetterRule) -> str:
    return "".join(chr(byte) for byte in range(128) if rule.codes[byte] != ELSEWHERE)


def known_strings(tokenizer: Any) -> list[str]:
    """The strings of a tokenizer's vocabulary as they would stand in a text; none if it has none.

    That is what `get_vocab()` gives, a mapping named `vocab`, or tiktoken's bytes of tokens.
    """
    tokens = _listed(tokenizer)
    texts = (
        token.decode(errors="replace") if isinstance(token, bytes) else token for token in tokens
    )
    return [text.translate(_WRITTEN) for text in texts if isinstance(text, str)]


def _listed(tokenizer: Any) -> Iterable[Any]:
    for name in ("get_vocab", "token_byte_values", "vocab"):
        listed = getattr(tokenizer, name, None)
        try:
            tokens = listed() if callable(listed) else listed
        except Exception:  # Foreign code, whose method of that name may be another.
            continue
        if isinstance(tokens, Iterable):
            return tokens
    return ()


def string_tests(rule: LetterRule, strings: Iterable[str]) -> Iterator[list[str]]:
    """Batches of texts with every string of a vocabulary that a row with codes may hold.

    Each is asked for alone, for a tokenizer may take a row as a whole; and among letters, signs
    and white space, in joined texts: an id that is not by the rule shows wherever it stands. Among
    words of k letters each is put at every place that a word may begin at, or may not.
    """
    covered = _covered(rule)
    whole = list(_whole_strings(rule, covered, strings))
    yield from ([*whole[i : i + _BATCH]] for i in range(0, len(whole), _BATCH))
    flanks = [*DNA, *filter(covered.__contains__, _FLANKS)]
    for number, flank in enumerate(flanks if rule.word_ids is None else DNA[:2]):
        for phase in range(rule.stride):
            # Runs of one to three flanks, so that strings stand at changing places.
            yield from _joined(whole, flank * (1 + number % 3), rule.stride, phase)


def _whole_strings(rule: LetterRule, covered: str, strings: Iterable[str]) -> Iterator[str]:
    """The runs of characters with codes, and of letters, in all strings and in either case.

    Runs, because a vocabulary may mark its strings: ##ACG and ACG</w> stand for ACG. A single
    character is tested anyway, and so is a word, alone and in the last random text.
    """
    run_of_covered = re.compile(f"[{re.escape(covered)}]{{2,}}")
    run_of_letters = re.compile("[A-Za-z]{2,}")
    cased = (case for text in strings for case in (text, text.lower(), text.upper()))
    runs = (run for text in cased for run in run_of_covered.findall(text))
    seen = dict.fromkeys(part for run in runs for part in (run, *run_of_letters.findall(run)))
    return (text for text in seen if rule.word_ids is None or len(text) != rule.k)


def _joined(strings: list[str], flank: str, stride: int, phase: int) -> Iterator[list[str]]:
    """Batches of texts of strings between flanks; each begins at phase, modulo stride."""
    batch, text = [], ""
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
