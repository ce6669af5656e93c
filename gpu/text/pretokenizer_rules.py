r"""Describes each pretokenizer rule as a state machine that reads character classes.

Tests compare the machines with the rules' published patterns. `pretokenizer_automaton` makes tables
of them.

Outputs, for the character that begins at place i, the one before it at place p:

    START        a pretoken begins at i
    START_PREV   a pretoken begins at p: the last space of "  a", which `\s+(?!\S)` leaves alone
    COMMIT       a pretoken begins at the pending place, which is then forgotten
    MARK         i becomes the pending place, after any COMMIT of the same step

MARK and COMMIT are for borders that only later characters decide: "\n  a" is "\n", " ", " a", but
"\n  \na" is "\n  \n", "a". A state may forget the pending place; then it does not COMMIT before
the next MARK.

    reads   a      \n     blank          blank          a
    does    START  START  MARK                          COMMIT, START_PREV
    state   word   line   pending blank  pending blank  word
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from vocabularies.preprocessing.unicode_classes import NUM_CODE_POINTS, Mask, class_mask, folded

START, START_PREV, MARK, COMMIT = 1, 2, 4, 8
END = "end"  # The class that stands for the end of a text.
FRESH = "fresh"  # The state in which any character begins a pretoken, as in front of a text.

Step = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """A pretokenizer as classes and steps.

    Attributes:
        classes: makes {class: bool[NUM_CODE_POINTS]}; a code point is in the first that has it,
            and the last has them all.
        step: (state, class or END) -> (next state, outputs).
    """

    classes: Callable[[], dict[str, Mask]]
    step: Callable[[str, str], Step]


def of(characters: str) -> Mask:
    """Return the mask of some characters."""
    mask = np.zeros(NUM_CODE_POINTS, np.bool_)
    mask[[ord(character) for character in characters]] = True
    return mask


def any_of(*names: str) -> Mask:
    """Return the mask of the characters in any of these Unicode classes."""
    mask: Mask = np.logical_or.reduce([class_mask(name, "rust") for name in names])
    return mask


def everything() -> Mask:
    """Return the mask of all code points."""
    return np.ones(NUM_CODE_POINTS, np.bool_)


def then(outputs: int, step: Step) -> Step:
    """Return `step` with `outputs` added to those that it has."""
    return step[0], step[1] | outputs


WORDS = ("word", "upper", "lower", "both", "mark")  # Classes of letters; "lower:s" is one, too.
SPACES = ("blank", "space")  # U+0020, and white space that is neither that nor a line break.
SIGNS = ("sign", "slash", "quote")
CONTRACTIONS = {"s": "sdmt", "l": "l", "v": "vr", "e": "e"}  # 's 'd 'm 't 'll 've 're.


def _contraction(state: str, kind: str) -> str | None:
    """Return the state after one more letter of a contraction; None if there is no contraction.

    States are "quote", "quote:word:l" (after "'l"), "suffix:upper:v" (after "a'V"), and FRESH after
    a whole contraction.
    """
    letter, last = kind.partition(":")[2], {"l": "l", "v": "e"}.get(state[-1])
    if ":" in state:
        return FRESH if letter == last else None
    return FRESH if letter == "s" else f"{state}:{kind}" if letter in ("l", "v") else None


# gpt2: ` ?\p{L}+`, ` ?\p{N}+`, ` ?[^\s\p{L}\p{N}]+`, and lower-case contractions before these.


def _gpt2_classes() -> dict[str, Mask]:
    classes = {f"word:{name}": of(letters) for name, letters in CONTRACTIONS.items()}
    classes |= {"word": any_of("L"), "digit": any_of("N"), "blank": of(" ")}
    return classes | {"space": any_of("s"), "quote": of("'"), "sign": everything()}


def _gpt2_step(state: str, kind: str) -> Step:
    run = "sign" if kind == "quote" else kind.partition(":")[0]
    begin = "quote" if kind == "quote" else run
    if state.startswith("quote"):
        contraction = _contraction(state, kind)
        if contraction is not None:
            return contraction, 0
        if state != "quote":  # "'l" and no second l: a sign, and a word that began at the l.
            return then(START_PREV, _gpt2_step("word", kind))
        state = "sign"
    if kind == END:
        return FRESH, 0
    if state in SPACES:
        if kind in SPACES:
            return kind, 0
        return (run, START_PREV) if state == "blank" else (begin, START | START_PREV)
    return (run, 0) if run == state else (begin, START)


# cl100k, llama3, qwen2, o200k and tekken: one family.


@dataclass(frozen=True, slots=True)
class _Family:
    r"""The options of the rules that end in ``\s*[\r\n]+|\s+(?!\S)|\s+``.

    Attributes:
        digits: how many digits a pretoken has at most.
        cased: words end before a capital, marks belong to words, "/" to line breaks after signs.
        contractions: "apart", "suffix" of a word, or "none".
        keeps_end: white space at a text's end is one pretoken, line breaks or not.
    """

    digits: int = 3
    cased: bool = False
    contractions: str = "apart"
    keeps_end: bool = False

    def classes(self) -> dict[str, Mask]:
        """See `Rule.classes`."""
        cases, others = {"word": any_of("L")}, {}
        if self.cased:
            cases = {"upper": any_of("Lu", "Lt"), "lower": any_of("Ll")}
            others = {"both": any_of("Lm", "Lo"), "mark": any_of("M"), "slash": of("/")}
        letters = {
            name: of("".join(c for member in members for c in folded(member, "rust")))
            for name, members in CONTRACTIONS.items()
            if self.contractions != "none"
        }
        classes = {f"{case}:{n}": letters[n] & cases[case] for n in letters for case in cases}
        classes |= cases | others | {"digit": any_of("N"), "blank": of(" "), "line": of("\r\n")}
        return classes | {"space": any_of("s"), "quote": of("'"), "sign": everything()}

    def begin(self, kind: str) -> str:
        """Return the state after the first character of a pretoken."""
        if kind == "quote":
            return "quote" if self.contractions == "apart" else "sign"
        state = kind.partition(":")[0]
        return {"digit": "digit 1", "slash": "sign", "mark": "both"}.get(state, state)

    def step(self, state: str, kind: str) -> Step:
        """See `Rule.step`."""
        first = state.split(":")[0]
        if first == "pending blank" or first == "pending space":
            return self._pending(first.split()[1], kind)
        if first == "quote" or first == "suffix":
            return self._contraction(state, kind)
        case = kind.partition(":")[0]
        if state in WORDS and (case in WORDS or kind == "quote"):
            return self._word(state, case)
        if state == "both upper":
            return self._both_upper(case, kind)
        if kind == END:
            return FRESH, 0
        if state in SPACES:
            return self._space(state, kind)
        return self._other(state, kind)

    def _other(self, state: str, kind: str) -> Step:
        """Step after digits, signs and line breaks."""
        match state, kind:
            case ("digit 1" | "digit 2" | "digit 3", "digit") if int(state[-1]) < self.digits:
                return f"digit {int(state[-1]) + 1}", 0
            case ("sign", _) if kind.partition(":")[0] in WORDS:
                return self.begin(kind), 0
            case ("sign" | "signs", _) if kind in SIGNS or kind == "mark":
                return "signs", 0
            case ("sign" | "signs" | "lines", "line") | ("lines", "slash"):
                return "lines", 0
            case ("line", "line"):
                return "line", 0
            case ("line", "blank" | "space"):
                return f"pending {kind}", MARK
        return self.begin(kind), START

    def _space(self, state: str, kind: str) -> Step:
        """Step after white space whose pretoken has no line break so far."""
        if kind in SPACES or kind == "line":
            return kind, 0
        if kind.partition(":")[0] in WORDS:
            return self.begin(kind), START_PREV
        if state == "blank" and kind in SIGNS:
            return "signs", START_PREV
        return self.begin(kind), START | START_PREV

    def _pending(self, state: str, kind: str) -> Step:
        """Step after white space with a line break; the pending place is after the last one."""
        if kind in SPACES:
            return f"pending {kind}", 0
        if kind == "line":
            return "line", 0
        if kind == END:
            return FRESH, 0 if self.keeps_end else COMMIT
        return then(COMMIT, self._space(state, kind))

    def _word(self, state: str, case: str) -> Step:
        """Step after a letter: "upper" and "both" while capitals may follow, then "lower"."""
        if case == "quote":
            return ("suffix", MARK) if self.contractions == "suffix" else (self.begin(case), START)
        if not self.cased:
            return "word", 0
        if case == "lower" or (state == "lower" and case != "upper"):
            return "lower", 0
        if case == "upper":
            return {"lower": ("upper", START), "both": ("both upper", MARK)}.get(state, (case, 0))
        return "both", 0

    def _both_upper(self, case: str, kind: str) -> Step:
        """Step after "中A", one word before a small letter ("中Ab") and two words before others."""
        if case in ("upper", "lower"):
            return {"upper": "both upper", "lower": "lower"}[case], 0
        if case in ("both", "mark"):
            return "both", 0
        return then(COMMIT, self.step("upper", kind))

    def _contraction(self, state: str, kind: str) -> Step:
        """Step after a quote that may begin a contraction, and after letters of one."""
        contraction = _contraction(state, kind)
        if contraction is not None:
            return contraction, 0
        first, _, letter = state.partition(":")
        back = self.step(letter.partition(":")[0] or "sign", kind)
        # The quote after a word is marked: without a contraction a pretoken begins there.
        return back if first == "quote" else then(COMMIT, back)


# deepseek_v3: three patterns; each splits the pieces that the one before made.


def _deepseek_classes() -> dict[str, Mask]:
    points = np.arange(NUM_CODE_POINTS)
    chinese = ((points >= ord("一")) & (points <= ord("龥"))) | (
        (points >= 0x3040) & (points <= ord("ヿ"))
    )
    ascii_only = points < 0x80
    words, signs = any_of("L", "M"), any_of("P", "S")
    classes = {"digit": any_of("N"), "chinese word": words & chinese}
    classes |= {"chinese signs": signs & chinese, "chinese other": chinese}
    classes |= {"latin": words & ascii_only, "word": words, "sign": signs & ascii_only}
    classes |= {"signs": signs, "blank": of(" "), "line": of("\r\n"), "space": any_of("s")}
    return classes | {"other": everything()}


_DEEPSEEK_SPACES = _Family(contractions="none")


def _deepseek_step(state: str, kind: str) -> Step:
    if kind == END:
        return _DEEPSEEK_SPACES.step(state, END) if state.startswith("pending") else (FRESH, 0)
    if state.startswith("digit"):
        count = int(state[-1]) + 1
        return (f"digit {count}", 0) if kind == "digit" and count <= 3 else _deepseek_begin(kind)
    if kind == "digit" or kind.startswith("chinese") != state.startswith("chinese"):
        return then(_deepseek_step(state, END)[1], _deepseek_begin(kind))
    if state.startswith("chinese"):
        chinese, state, kind = "chinese ", state[8:], kind[8:]
        after, outputs = _deepseek_inside(state, kind)
        return chinese + after, outputs
    return _deepseek_inside(state, kind)


def _deepseek_begin(kind: str) -> Step:
    return "digit 1" if kind == "digit" else kind, START


def _deepseek_inside(state: str, kind: str) -> Step:
    """Make a step of the third pattern."""
    letter, sign = kind in ("latin", "word"), kind in ("sign", "signs")
    if state.startswith("pending") and (kind in SPACES or kind == "line"):
        return _DEEPSEEK_SPACES.step(state, kind)
    if state.startswith("pending"):
        return then(COMMIT, _deepseek_inside(state.split()[1], kind))
    match state:
        case "word" | "latin" if letter:
            return "word", 0
        case "sign" if kind == "latin":
            return "sign word", 0
        case "sign word" if kind == "latin":
            return "sign word", 0
        case "sign" | "signs" if sign:
            return "signs", 0
        case "sign" | "signs" | "lines" if kind == "line":
            return "lines", 0
        case "other" if letter:
            return "word", START_PREV
        case "other" if kind == "other":
            return "other", 0
        case "blank" | "space" if letter:
            return "word", START_PREV
        case "blank" if sign:
            return "signs", START_PREV
        case "blank" | "space" if kind in SPACES or kind == "line":
            return kind, 0
        case "blank" | "space":
            return kind, START | START_PREV
        case "line" if kind in SPACES or kind == "line":
            return _DEEPSEEK_SPACES.step(state, kind)
    return kind, START


def _none_step(state: str, kind: str) -> Step:
    return (FRESH, 0) if kind == END else ("inside", START * (state == FRESH))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "gpt2": Rule(_gpt2_classes, _gpt2_step),
        "deepseek_v3": Rule(_deepseek_classes, _deepseek_step),
        "none": Rule(lambda: {"any": everything()}, _none_step),
    }
    | {
        name: Rule(family.classes, family.step)
        for name, family in {
            "cl100k": _Family(keeps_end=True),
            "llama3": _Family(),
            "qwen2": _Family(digits=1),
            "o200k": _Family(cased=True, contractions="suffix"),
            "tekken": _Family(digits=1, cased=True, contractions="none"),
        }.items()
    }
)
