"""Runs the commands `decode`, `vocabularies`, `verify`, `convert` and `key`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from service.cli.vocabulary_files import open_vocabulary, output_format, write_files
from service.engines.cpu.engine import CpuEngine
from service.seqio.reader import standard_input
from vocabularies import builtin
from vocabularies.model.vocabulary import Vocabulary

MAX_DIGITS = 30  # No id has so many.
SHORT_DIGEST = len("sha256:") + 12


def _open(arguments: argparse.Namespace) -> Vocabulary:
    special_tokens = arguments.special_tokens
    return open_vocabulary(
        arguments.vocabulary,
        pretokenizer=arguments.pretokenizer,
        special_tokens=None if special_tokens is None else dict(special_tokens),
        decoder=getattr(arguments, "decoder", "file"),
    )


def decode(arguments: argparse.Namespace) -> int:
    """Decode ids and write the bytes to stdout; return 1 if a row was refused."""
    vocabulary, engine = _open(arguments), CpuEngine()
    code = 0
    for place, row in _rows(arguments):
        offsets = np.array([0, len(row)], np.int64)
        decoded = engine.decode(
            vocabulary, np.array(row, np.int64), offsets, arguments.skip_special_tokens
        )
        for error in decoded.errors.values():
            print(f"warptok: {place}{error.message} ({error.where})", file=sys.stderr)
            code = 1
        data = decoded.data.tobytes()
        sys.stdout.buffer.write(data + b"\n" if arguments.lines else data)
        if not arguments.lines and sys.stdout.isatty() and not data.endswith(b"\n"):
            sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
    return code


def _rows(arguments: argparse.Namespace) -> Iterator[tuple[str, list[int]]]:
    """Read lists of ids, each with its place in the input.

    Raises:
        ValueError: stdin is closed, or does not contain ids.
    """
    if arguments.ids:
        yield "", arguments.ids
    elif arguments.lines:
        for number, line in enumerate(standard_input(), 1):
            yield f"line {number}: ", _parse_ids(line, f"line {number}")
    else:
        yield "", _parse_ids(standard_input().read(), "stdin")


def _parse_ids(data: bytes, place: str) -> list[int]:
    """Parse a JSON list, an object with "ids", or numbers with white space between.

    Raises:
        ValueError: the data have none of these forms.
    """
    wrong = f"{place}: neither a JSON list of ids nor numbers separated by spaces"
    text = data.strip()
    if text[:1] not in (b"[", b"{"):
        words = text.split()
        # Python's own error for thousands of digits would not have the place.
        if not all(word.isdigit() and len(word) <= MAX_DIGITS for word in words):
            raise ValueError(wrong)
        return _check_ids([int(word) for word in words], place)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{place}: not JSON: {error}") from error
    ids = value.get("ids") if isinstance(value, dict) else value
    if not isinstance(ids, list) or any(type(token_id) is not int for token_id in ids):
        raise ValueError(wrong)
    return _check_ids(ids, place)


def _check_ids(ids: list[int], place: str) -> list[int]:
    limit = np.iinfo(np.int64)
    for index, token_id in enumerate(ids):
        if not limit.min <= token_id <= limit.max:
            raise ValueError(f"{place}: ids[{index}] is larger than the ids of any vocabulary")
    return ids


def vocabularies(arguments: argparse.Namespace) -> int:
    """Print a table of the built-in vocabularies."""
    rows = [_describe(name) for name in builtin.BUILTINS]
    if arguments.json:
        for row in rows:
            sys.stdout.buffer.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        return 0
    table = [["name", "kind", "size", "digest", "licence"]]
    table += [
        [row["name"], row["kind"], str(row["size"]), row["digest"][:SHORT_DIGEST], row["licence"]]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row_cells in table:
        cells = zip(row_cells, widths, strict=True)
        print("  ".join(cell.ljust(width) for cell, width in cells).rstrip())
    return 0


def _describe(name: str) -> dict[str, Any]:
    vocabulary, info = builtin.load(name), builtin.describe(name)
    return {
        "name": name,
        "kind": vocabulary.kind,
        "size": len(vocabulary),
        "digest": vocabulary.digest,
        "licence": info.licence,
        "source": info.source,
    }


def verify(arguments: argparse.Namespace) -> int:
    """Compare the engine's ids with the reference's; return 1 if a text differs."""
    from service.engines.cpu.verification import sample_texts
    from service.engines.cpu.verification import verify as compare

    vocabulary = _open(arguments)
    if arguments.texts is None:
        texts = sample_texts(vocabulary, arguments.samples)
    else:
        texts = _lines(Path(arguments.texts))
    engine = CpuEngine()
    result = compare(engine, vocabulary, texts)
    residency = engine.residency(vocabulary.digest)
    encoder = residency.encoder if residency is not None else engine.name
    print(
        f"{result.num_texts - result.num_different} of {result.num_texts} texts and "
        f"{result.num_equal_ids} of {result.num_ids} ids are equal: {encoder}, compared with "
        f"{result.witness}"
    )
    if result.first_difference is not None:
        for label, value in result.first_difference.items():
            print(f"  {label}: {value!r}")
    return 1 if result.num_different else 0


def _lines(path: Path) -> list[str]:
    """Read the texts of a file; only a line feed ends a text, as for `encode --lines`.

    Raises:
        ValueError: a text is not UTF-8.
    """
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    texts = []
    for number, line in enumerate(lines, 1):
        try:
            texts.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            place = f"{path}:{number}: byte {error.start}"
            raise ValueError(f"{place} is not UTF-8: {error.reason}") from error
    return texts


def convert(arguments: argparse.Namespace) -> int:
    """Write a vocabulary in another format.

    Raises:
        ValueError: the format is unknown, or a file exists already.
    """
    vocabulary, out = _open(arguments), Path(arguments.out)
    format = output_format(arguments.format, out)
    for path in write_files(vocabulary, out, format, force=arguments.force):
        print(path)
    return 0


def key(arguments: argparse.Namespace) -> int:
    """Add a new key to the file of keys, and print the secret, which is not stored.

    Raises:
        ValueError: the file is damaged, or has a key of this name.
    """
    from service.security.api_keys import add_key
    from service.security.rate_limits import Rates

    rates = Rates(arguments.requests_per_s, arguments.bytes_per_s)
    print(add_key(arguments.file, arguments.name, tuple(arguments.scopes), rates))
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "decode": decode,
    "vocabularies": vocabularies,
    "verify": verify,
    "convert": convert,
    "key": key,
}
