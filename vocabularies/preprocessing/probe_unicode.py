"""Measures the Unicode classes of the published regex engines and writes them to a file.

Run it where tiktoken and tokenizers are installed:
``python -m vocabularies.preprocessing.probe_unicode [file]``.
Every line of `unicode_classes.json` is measured in an engine; this module uses no Unicode tables.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

DATA = Path(__file__).with_name("unicode_classes.json")
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S", "s", "w")
CONTRACTION_LETTERS = "sdmtlver"
OVERLAY, COMMA_ABOVE_RIGHT = "\u0334", "\u0315"  # Combining classes 1 and 232.

Matches = Callable[[str, str], str]


def to_ranges(code_points: Iterable[int]) -> str:
    """Write sorted code points as ``"41-5a 61-7a aa"``: hexadecimal, including both ends."""
    ranges: list[list[int]] = []
    for code_point in sorted(code_points):
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in ranges)


def _rust_matches(pattern: str, text: str) -> str:
    """Return the joined matches of tiktoken's regex; encoding drops all other text."""
    import tiktoken

    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return bytes(encoding.encode_ordinary(text)).decode()


def _onig_matches(pattern: str, text: str) -> str:
    """Return the characters that the regex of tokenizers' Split matches: Replace removes them."""
    from tokenizers import Regex, normalizers

    rest = set(normalizers.Replace(Regex(f"(?:{pattern})+"), "").normalize_str(text))
    return "".join(character for character in text if character not in rest)


ENGINES: dict[str, Matches] = {"rust": _rust_matches, "onig": _onig_matches}


def _by_engine(probe: Callable[[Matches, str], str], names: Iterable[str]) -> dict[str, str]:
    """Return {name: result} if the engines agree, else {"engine:name": result} for each."""
    results: dict[str, str] = {}
    for name in names:
        found = {engine: probe(matches, name) for engine, matches in ENGINES.items()}
        if len(set(found.values())) == 1:
            results[name] = found["rust"]
        else:
            results |= {f"{engine}:{name}": result for engine, result in found.items()}
    return results


def _class_ranges(matches: Matches, name: str) -> str:
    pattern = f"\\{name}" if name.islower() else f"\\p{{{name}}}"
    return to_ranges(map(ord, matches(pattern, "".join(map(chr, CODE_POINTS)))))


def _folded(matches: Matches, letter: str) -> str:
    return to_ranges(map(ord, matches(f"(?i:{letter})", "".join(map(chr, CODE_POINTS)))))


def _changed(normalize: Callable[[str], str], before: str = "", after: str = "") -> dict[int, str]:
    """Return {code point: normalized text} of characters that change between these others."""
    lines = normalize("\n".join(before + chr(c) + after for c in CODE_POINTS if c != 10)).split(
        "\n"
    )
    code_points = [c for c in CODE_POINTS if c != 10]
    return {
        c: line
        for c, line in zip(code_points, lines, strict=True)
        if line != before + chr(c) + after
    }


def _lowercase(pairs: dict[int, str]) -> dict[str, object]:
    """Write the mapping: runs "first-last:step:distance", and characters with several letters."""
    runs: list[list[int]] = []
    for upper, lower in sorted(pairs.items()):
        if len(lower) > 1:
            continue
        distance = ord(lower) - upper
        first, last, step, known = runs[-1] if runs else (0, 0, 0, 0)
        if runs and known == distance and upper - last in ({1, 2} if first == last else {step}):
            runs[-1] = [first, upper, upper - last, distance]
        else:
            runs.append([upper, upper, 1, distance])
    return {
        "runs": " ".join(f"{a:x}-{b:x}:{step}:{distance}" for a, b, step, distance in runs),
        "several": {chr(c): lower for c, lower in pairs.items() if len(lower) > 1},
    }


def probe() -> dict[str, object]:
    """Measure everything that `unicode_classes.json` holds."""
    from tokenizers import normalizers

    decompose = normalizers.NFD().normalize_str
    decomposing = _changed(decompose)
    combining = {
        *_changed(decompose, before=COMMA_ABOVE_RIGHT),
        *_changed(decompose, after=OVERLAY),
    }
    strip = normalizers.Strip().normalize_str
    return {
        "made_by": "python -m vocabularies.preprocessing.probe_unicode",
        "engines": {
            "rust": f"tiktoken {version('tiktoken')}",
            "onig": f"tokenizers {version('tokenizers')}",
        },
        "classes": _by_engine(_class_ranges, CLASSES),
        "folded": _by_engine(_folded, CONTRACTION_LETTERS),
        "strip": to_ranges(c for c in CODE_POINTS if not strip(chr(c))),
        "decomposing": to_ranges(decomposing),
        "combining": to_ranges(combining - decomposing.keys()),
        "lowercase": _lowercase(_changed(normalizers.Lowercase().normalize_str)),
    }


def main(path: Path = DATA) -> None:
    """Probe the installed engines and write the data file."""
    path.write_text(json.dumps(probe(), indent=0, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
