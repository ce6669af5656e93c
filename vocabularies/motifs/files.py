"""Reads motifs and the confidence of bases from FASTA, TSV, JSON, or one motif on a line.

Every error has the file and the line. This module does not depend on corpora or tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import MAX_FINDINGS, decode_text, parse_json, refuse_binary_files
from vocabularies.motifs.bank import FULL_WEIGHT, Motif, MotifBank, spell_with_t

MotifFormat = Literal["auto", "fasta", "tsv", "json", "lines"]
COLUMNS = ("sequence", "name", "weight")
WEIGHT_WORD = "weight="


def read_motifs(name: str, data: bytes, format: MotifFormat = "auto") -> MotifBank:
    """Read a bank of motifs from one file.

    - fasta: ``>name`` or ``>name weight=2.5``, then the sequence, on one or more lines;
    - tsv: columns sequence, name and weight, of which the last two are optional. If the first line
      contains the word ``sequence``, it is a header; columns may then have any order, and unknown
      ones are ignored;
    - json: a list of sequences, or of objects with "sequence", "name", "weight";
    - lines: a sequence on each line.

    Empty lines and, except in JSON, lines that begin with "#" are skipped. A weight is greater than
    0, at most 1000, and has at most three decimals; the default is 1.

    Args:
        name: the file's name, for errors.
        data: its content.
        format: one of the formats above, or "auto": detected by the content.

    Raises:
        VocabularyError: the file is invalid; the error lists file and line of the first hundred
            faults.
    """
    refuse_binary_files({name: data})
    try:
        text = decode_text(data)
    except VocabularyError as error:
        raise _in_file(name, error) from error
    kind = _detect(text) if format == "auto" else format
    if kind not in get_args(MotifFormat):
        message = f"unknown format {format!r}; known are {', '.join(get_args(MotifFormat))}"
        raise VocabularyError.at("format", message)
    readers = {"fasta": _fasta, "tsv": _tsv, "json": _json, "lines": _lines}
    motifs: list[Motif] = []
    findings: list[Finding] = []
    for found in readers[kind](name, text):
        (findings if isinstance(found, Finding) else motifs).append(found)  # type: ignore[arg-type]
    if not findings and not motifs:
        findings.append(Finding(name, "holds no motif"))
    try:
        bank = MotifBank(tuple(motifs)) if motifs else None
    except VocabularyError as error:
        findings.extend(error.findings)
    if findings:
        raise VocabularyError(findings[:MAX_FINDINGS])
    assert bank is not None
    return bank


def _in_file(name: str, error: VocabularyError) -> VocabularyError:
    return VocabularyError(Finding(f"{name}: {f.where}", f.message) for f in error.findings)


def _detect(text: str) -> MotifFormat:
    first = text.lstrip()[:1]
    if first == ">":
        return "fasta"
    if first in ("[", "{"):
        return "json"
    return "tsv" if "\t" in text else "lines"


def _content_lines(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of each line that is neither empty nor a comment."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            yield f"{name}: line {number}", line.rstrip("\r")


def _lines(name: str, text: str) -> Iterator[Motif | Finding]:
    for where, line in _content_lines(name, text):
        yield Motif(spell_with_t(line.strip()), where=where)


def _tsv(name: str, text: str) -> Iterator[Motif | Finding]:
    columns: tuple[str, ...] = COLUMNS
    for i, (where, line) in enumerate(_content_lines(name, text)):
        cells = [cell.strip() for cell in line.split("\t")]
        header = tuple(cell.lower() for cell in cells)
        if i == 0 and "sequence" in header:
            columns = header
            continue
        if len(cells) > len(columns):
            yield Finding(where, f"has {len(cells)} columns; the columns are {', '.join(columns)}")
            continue
        row = dict(zip(columns, cells, strict=False))
        yield _motif(where, row.get("sequence", ""), row.get("name", ""), row.get("weight", ""))


def _fasta(name: str, text: str) -> Iterator[Motif | Finding]:
    header: tuple[str, str] | None = None
    parts: list[str] = []
    for where, line in _content_lines(name, text):
        if not line.startswith(">"):
            if header is None:
                yield Finding(where, "a sequence comes before the first '>'")
            parts.append(line.strip())
            continue
        if header is not None:
            yield _fasta_motif(*header, parts)
        header, parts = (where, line[1:]), []
    if header is not None:
        yield _fasta_motif(*header, parts)


def _fasta_motif(where: str, header: str, parts: list[str]) -> Motif | Finding:
    words = header.split()
    weights = [w.removeprefix(WEIGHT_WORD) for w in words[1:] if w.startswith(WEIGHT_WORD)]
    return _motif(where, "".join(parts), words[0] if words else "", *weights[-1:])


def _json(name: str, text: str) -> Iterator[Motif | Finding]:
    try:
        document = parse_json(text.encode())
    except VocabularyError as error:
        yield from _in_file(name, error).findings
        return
    if not isinstance(document, list):
        yield Finding(f"{name}: line 1", "must be a list of sequences or of objects")
        return
    for i, item in enumerate(document):
        yield _json_motif(f"{name}: [{i}]", item)


def _json_motif(where: str, item: Any) -> Motif | Finding:
    if isinstance(item, str):
        return _motif(where, item)
    if not isinstance(item, dict) or not isinstance(item.get("sequence"), str):
        return Finding(where, "must be a sequence, or an object with a sequence")
    if unknown := sorted(item.keys() - set(COLUMNS)):
        return Finding(
            where, f"unknown fields {', '.join(unknown)}; the fields are {', '.join(COLUMNS)}"
        )
    name, weight = item.get("name", ""), item.get("weight", 1)
    if not isinstance(name, str) or type(weight) not in (int, float):
        return Finding(where, "name must be a string and weight a number")
    return _motif(where, item["sequence"], name, repr(weight))


def _motif(where: str, sequence: str, name: str = "", weight: str = "") -> Motif | Finding:
    thousandths = _thousandths(weight) if weight else FULL_WEIGHT
    if thousandths is None:
        return Finding(where, f"the weight {weight!r} is not a number with at most three decimals")
    return Motif(spell_with_t(sequence), name, thousandths, where)


def _thousandths(word: str) -> int | None:
    """Convert a decimal number to thousandths; None for other words and more than 3 decimals."""
    if not word.isascii() or "_" in word:  # Python's numbers may have them.
        return None
    try:
        value = float(word)
    except ValueError:
        return None
    scaled = value * FULL_WEIGHT
    if not math.isfinite(scaled) or abs(scaled - round(scaled)) > 1e-6:
        return None
    return round(scaled)


def read_confidence(
    name: str, data: bytes, offsets: NDArray[np.int64], names: list[str] | None = None
) -> NDArray[np.int64]:
    """Read the confidence of each base of a corpus, int64[N] in thousandths.

    The file has a record for each sequence, in order: a line ``>name``, then numbers from 0 to 1,
    one for each base, separated by white space, on any number of lines.

    Args:
        name: the file's name, for errors.
        data: its content.
        offsets: int64[B + 1], where each sequence of the corpus begins.
        names: the names of the sequences, which must equal those of the records; None: any names.

    Raises:
        VocabularyError: the file is invalid; the error has file and line.
    """
    try:
        text = decode_text(data)
    except VocabularyError as error:
        raise _in_file(name, error) from error
    confidence = np.zeros(int(offsets[-1]), np.int64)
    row, filled, where = -1, 0, f"{name}: line 1"
    for where, line in _content_lines(name, text):
        if line.startswith(">"):
            _check_filled(where, row, filled, offsets)
            row += 1
            _check_record(where, row, line[1:].split()[:1], len(offsets) - 1, names)
            filled = int(offsets[row])
            continue
        if row < 0:
            raise VocabularyError.at(where, "numbers come before the first '>'")
        values = _fractions(where, line)
        if filled + len(values) > offsets[row + 1]:
            length = offsets[row + 1] - offsets[row]
            raise VocabularyError.at(
                where, f"there are more numbers than the {length} bases of sequence {row + 1}"
            )
        confidence[filled : filled + len(values)] = values
        filled += len(values)
    _check_filled(where, row, filled, offsets)
    if row + 1 < len(offsets) - 1:
        raise VocabularyError.at(
            where, f"there are {row + 1} records for {len(offsets) - 1} sequences"
        )
    return confidence


def _check_filled(where: str, row: int, filled: int, offsets: NDArray[np.int64]) -> None:
    if row >= 0 and filled < offsets[row + 1]:
        given, length = filled - offsets[row], offsets[row + 1] - offsets[row]
        message = f"there are only {given} numbers for the {length} bases of sequence {row + 1}"
        raise VocabularyError.at(where, message)


def _check_record(
    where: str, row: int, word: list[str], num_rows: int, names: list[str] | None
) -> None:
    if row >= num_rows:
        raise VocabularyError.at(
            where, f"there are more records than the {num_rows} sequences of the corpus"
        )
    if names is not None and word != [names[row]]:
        message = f"sequence {row + 1} of the corpus is called {names[row]!r}"
        raise VocabularyError.at(where, message)


def _fractions(where: str, line: str) -> NDArray[np.int64]:
    if not line.isascii() or "_" in line:
        raise VocabularyError.at(where, "not numbers: there are other signs")
    try:
        values = np.array(line.split(), np.float64)
    except ValueError as error:
        raise VocabularyError.at(where, f"not numbers: {error}") from error
    if not ((values >= 0) & (values <= 1)).all():
        raise VocabularyError.at(where, "a confidence must be from 0 to 1")
    return np.rint(values * FULL_WEIGHT).astype(np.int64)
