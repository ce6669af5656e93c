"""Parses the bytes of files as text or JSON, and reports the place of every fault.

Archives, compressed files and pickles are refused before anything is parsed. This module does not
depend on a vocabulary format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.json_chunks import ChunkParser

MAX_TOKENS = 4_000_000
MAX_DEPTH = 64
MAX_FINDINGS = 100
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x5d\x00\x00", "lzma"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"PK\x07\x08", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!", "rar"),
)


class NotRepresentable(Exception):
    """No model of this package represents a valid file exactly; the message says why."""


class _BadJson(ValueError):
    """The text is JSON that the standard parser accepts and `parse_json` does not."""


def refuse_binary_files(files: Mapping[str, bytes]) -> None:
    """Refuse archives and binary files by their first bytes.

    Raises:
        VocabularyError: a file is compressed, an archive or a pickle.
    """
    findings = []
    for name, data in files.items():
        kind = next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")
        if data[257:262] == b"ustar":
            kind = "tar"
        elif data[:1] == b"\x80" and data[1:2] in b"\x02\x03\x04\x05":
            kind = "pickle"
        if kind:
            message = (
                f"archives and pickles are not supported; this is {kind}, so send the file inside"
            )
            findings.append(Finding(name, message))
    if findings:
        raise VocabularyError(findings)


def decode_text(data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises:
        VocabularyError: the data are not UTF-8; the error has the place of the first invalid byte.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = f"line {line}"
        raise VocabularyError.at(where, f"byte {error.start}: {error.reason}, not UTF-8") from error


def parse_json(data: bytes) -> Any:
    """Parse JSON without repeated keys, NaN, deep nesting or half surrogate pairs.

    Raises:
        VocabularyError: the data are not such JSON; the error has the line and column, or the path.
    """
    text = decode_text(data)
    try:
        document = _parse_text(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        cut = " (the file ends there)" if not text[error.pos :].strip() else ""
        raise VocabularyError.at(where, f"not JSON: {error.msg}{cut}") from error
    except RecursionError as error:
        raise VocabularyError.at(
            "line 1", f"is nested more than {MAX_DEPTH} levels deep"
        ) from error
    except ValueError as error:
        raise VocabularyError.at("line 1", str(error)) from error
    if _depth_above(document, MAX_DEPTH):
        raise VocabularyError.at("line 1", f"is nested more than {MAX_DEPTH} levels deep")
    if _ESCAPED_HALF.search(text):
        for where in _half_characters(document, ""):
            raise VocabularyError.at(
                where, "contains half a surrogate pair, which is not a character"
            )
    return document


def _parse_text(text: str) -> Any:
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
    with suppress(ValueError, RecursionError):
        return ChunkParser(text, decoder).parse()
    return decoder.decode(text)  # It finds the first fault of the whole text.


def _half_characters(node: Any, where: str) -> Iterator[str]:
    """Yield the places of strings and keys that contain half a surrogate pair."""
    match node:
        case str():
            if _HALF.search(node):
                yield where
        case dict():
            for key, child in node.items():
                name = f".{key}" if key.isidentifier() else f"[{key!r}]"
                place = (where + name).removeprefix(".")
                yield from _half_characters(key, place)
                yield from _half_characters(child, place)
        case list():
            for i, child in enumerate(node):
                yield from _half_characters(child, f"{where}[{i}]")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) == len(pairs):
        return content
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _BadJson(f"an object has the key {key!r} twice")
        seen.add(key)
    raise AssertionError("a shorter dictionary has a repeated key")


def _refuse_constant(name: str) -> NoReturn:
    raise _BadJson(f"{name} is not JSON")


def _depth_above(document: Any, limit: int) -> bool:
    level = [document]
    for _ in range(limit):
        level = [
            child
            for node in level
            if isinstance(node, dict | list) and node
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def read_token_ids(vocab: Any, where: str) -> dict[str, int]:
    """Check a JSON object of token -> id.

    Raises:
        VocabularyError: some ids are not numbers, too large or used twice; the error lists each
            entry.
    """
    if not isinstance(vocab, dict) or not vocab:
        raise VocabularyError.at(where, "must be an object of token -> id with at least one entry")
    ids = list(vocab.values())
    plain = all(type(token_id) is int for token_id in ids)
    if plain and 0 <= min(ids) and max(ids) < MAX_TOKENS and len(set(ids)) == len(ids):
        return vocab
    raise VocabularyError(_id_findings(vocab.items(), where))


def _id_findings(entries: Iterable[tuple[str, Any]], where: str) -> list[Finding]:
    """Find every wrong entry (token, id), at most MAX_FINDINGS."""
    findings: list[Finding] = []
    owner: dict[int, str] = {}
    for token, token_id in entries:
        place = f"{where}[{token!r}]"
        if type(token_id) is not int or not 0 <= token_id < MAX_TOKENS:
            findings.append(Finding(place, f"{token_id!r} is not an id of 0..{MAX_TOKENS - 1}"))
        elif token_id in owner:
            findings.append(Finding(place, f"id {token_id} is given to {owner[token_id]!r} too"))
        else:
            owner[token_id] = token
        if len(findings) == MAX_FINDINGS:
            break
    return findings
