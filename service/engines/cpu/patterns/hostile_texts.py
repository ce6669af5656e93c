r"""Makes texts from a regular expression on which the expression may take long.

Such texts repeat a string that the expression matches, or almost matches, and end with characters
that it does not match, so that the matcher tries every way to divide the repetitions. The
expression is parsed roughly: unknown syntax counts as letters. The texts are deterministic.

Example: ``(foo|o+)*x`` leads, among others, to "foofoofoo…!", "oooo…!" and "foofo!foofo!…".
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

NUM_SAMPLES = 24  # Random strings that the expression matches, as far as it is understood.
MAX_LETTERS = 16
MAX_SAMPLE = 60  # Characters.
MAX_UNITS = 160
MAX_REPEATED = 3  # Repetitions of a part in a sample, if it needs no more.
MAX_DEPTH = 20
ODD = "\x01"
ENDS = ("", ODD, "!")
CLASSES = {
    **dict.fromkeys("dN", "17"),
    **dict.fromkeys("wL", "aZ"),
    **dict.fromkeys("sZR", " \n"),
    **dict.fromkeys("SDW", "!a"),
    **dict.fromkeys("PS", "!."),
    **{"h": "a1", "X": "ae", "M": "\u0301", "n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"},
}
SYMBOL = re.compile(
    r"""
    (?P<open> \( (?: \?(?: [imxa-]*: | [=!>~] | <[=!]? (?:\w+>)? | [imxa-]+\) | \#[^)]*\) ) )? )
  | (?P<close> \) )
  | (?P<either> \| )
  | (?P<quantifier> [*+?][+?]? | \{ (?P<least>\d*) (?P<comma>,?) (?P<most>\d*) \}[+?]? )
  | (?P<property> \\[pP]\{ \^? (?P<name>\w) [^}]*\} )
  | (?P<code> \\(?:x\{ (?P<hex>[0-9a-fA-F]+) \} | x(?P<two>[0-9a-fA-F]{2}) ) )
  | (?P<nothing> \\[bBAzZGK] | [\^$] )
  | \\(?P<escape> . )
  | (?P<set> \[ (?: \\. | \[ (?: \\. | [^\]] )* \] | [^\]\\] )+ \] )
  | (?P<letter> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def make_units(pattern: str) -> list[str]:
    """Make the strings that hostile texts repeat, the simplest first."""
    chance = random.Random(0)
    letters = _list_letters(pattern)
    samples = [_Sampler(pattern, chance).sample() for _ in range(NUM_SAMPLES)]
    samples = [sample for sample in dict.fromkeys(samples) if sample]
    words = [word for word in re.findall(r"[^\W_]{2,}|[^\w\s\\]{2,}", pattern) if len(word) < 40]
    units = [*letters, *words, *samples]
    units += [a + b for a in letters[:8] for b in letters[:8] if a != b]
    for sample in samples:
        place = chance.randrange(len(sample))
        units += [sample[:-1] or ODD, sample + ODD, sample[:place] + ODD + sample[place + 1 :]]
        units.append("".join(chance.choices(letters, k=chance.randint(2, 6))))
    return list(dict.fromkeys(units))[:MAX_UNITS]


def make_texts(pattern: str, unit: str, size: int) -> Iterator[str]:
    """Make texts of about `size` characters that repeat a unit and end in different ways."""
    repeated = (unit * (size // len(unit) + 1))[:size]
    for end in ENDS:
        yield repeated + end
    # A literal that must occur stands far behind, where it does not help.
    yield repeated + ODD + _Sampler(pattern, random.Random(1)).sample()


def _list_letters(pattern: str) -> list[str]:
    """List characters that parts of the expression match, without duplicates."""
    letters: list[str] = []
    for symbol in SYMBOL.finditer(pattern):
        letters += _choices(symbol)
    return list(dict.fromkeys(["a", " ", *letters, "1", "!"]))[:MAX_LETTERS]


def _choices(symbol: re.Match[str]) -> list[str]:
    """Return some characters that a symbol matches; none for syntax."""
    kind = symbol.lastgroup
    if symbol["name"]:
        return [*CLASSES.get(symbol["name"], "a")]
    if number := symbol["hex"] or symbol["two"]:
        code = int(number, 16)
        return [chr(code)] if code < 0xD800 or 0xDFFF < code < 0x110000 else ["a"]
    if symbol["escape"]:
        return [*CLASSES.get(symbol["escape"], symbol["escape"])]
    if symbol["set"]:
        return _members(symbol["set"])
    if kind == "letter":
        return ["a", "."] if symbol["letter"] == "." else [symbol["letter"]]
    return []


def _members(text: str) -> list[str]:
    """Return some members of a character set; for a negated set, a letter, a digit and a sign."""
    if text.startswith("[^"):
        return [letter for letter in "a1! é" if letter not in text] or ["\u4e2d"]
    inner = re.sub(r"\[:\^?\w+:\]", "a1", text[1:-1])
    members: list[str] = []
    for symbol in SYMBOL.finditer(inner.replace("[", "").replace("]", "")):
        members += _choices(symbol) or [symbol[0][0]]
    return [member for member in dict.fromkeys(members) if member not in "-&"][:6] or ["a"]


class _Sampler:
    """Makes random strings that an expression matches, if its syntax is known."""

    def __init__(self, pattern: str, chance: random.Random) -> None:
        self.symbols = list(SYMBOL.finditer(pattern))
        self.chance = chance

    def sample(self) -> str:
        """Make one string."""
        self.place = 0
        return self._either(0)[:MAX_SAMPLE]

    def _either(self, depth: int) -> str:
        """Make a string of one of the alternatives up to a closing parenthesis or the end."""
        written = [self._sequence(depth)]
        while self._kind() == "either":
            self.place += 1
            written.append(self._sequence(depth))
        return self.chance.choice(written)

    def _sequence(self, depth: int) -> str:
        written = ""
        while self._kind() not in ("", "either", "close"):
            part = self._part(depth)
            while self._kind() in ("quantifier", "least", "comma", "most"):
                part *= self._count(self.symbols[self.place])
                self.place += 1
            written = (written + part)[: 2 * MAX_SAMPLE]
        return written

    def _part(self, depth: int) -> str:
        symbol = self.symbols[self.place]
        self.place += 1
        if self._is(symbol, "open"):
            if symbol[0].endswith(")"):  # Options, or a comment.
                return ""
            inner = self._either(depth + 1) if depth < MAX_DEPTH else ""
            if self._kind() == "close":
                self.place += 1
            looks_around = re.fullmatch(r"\(\?<?[=!]", symbol[0])
            return "" if looks_around else inner
        choices = _choices(symbol)
        return self.chance.choice(choices) if choices else ""

    def _count(self, symbol: re.Match[str]) -> int:
        least = {"*": 0, "?": 0}.get(symbol[0][0], 1)
        if symbol[0][0] == "{":
            least = min(int(symbol["least"] or 0), MAX_SAMPLE)
        return self.chance.randint(least, max(least, 1 if symbol[0] == "?" else MAX_REPEATED))

    def _kind(self) -> str:
        if self.place == len(self.symbols):
            return ""
        symbol = self.symbols[self.place]
        kinds = ("open", "close", "either", "quantifier")
        return next((kind for kind in kinds if self._is(symbol, kind)), "letter")

    @staticmethod
    def _is(symbol: re.Match[str], kind: str) -> bool:
        return symbol[kind] is not None
