r"""Writes the tokenizer.json of a SentencePiece model by SentencePiece's own rules.

A text becomes the ids that `SentencePieceProcessor.encode` returns:

    rules for characters ──► extra spaces removed ──► a space put first ──► spaces become "▁"
                         ──► user-defined symbols cut out ──► Unigram or BPE

The library tokenizers finds every entry of its vocabulary in a text. SentencePiece never finds
control, unknown and unused pieces, so their entries have a space, which no normalized text has.
`reader` gives them their names back.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import MAX_FINDINGS
from vocabularies.formats.sentencepiece.charsmap import find_replacement, find_rewritten
from vocabularies.formats.sentencepiece.merges import find_merges
from vocabularies.formats.sentencepiece.model_file import ModelFile, ModelType, Piece, PieceType
from vocabularies.preprocessing.running_time import (
    BYTE_NAME,
    TRAILING_SPACE_SYMBOLS,
    WHOLE_BYTE_NAME,
)

SPACE = "▁"
MAX_LENGTH = 1_000  # Characters of a piece; the trainer makes up to 512.
MAX_CHARACTERS = 1 << 24  # Of all pieces together; 2,000,000 in Gemma's.
MAX_USER_DEFINED = 1 << 17  # Characters of all user-defined symbols together.


def write_by_own_rules(model: ModelFile) -> dict[str, Any]:
    """Write the tokenizer.json of a model.

    Raises:
        VocabularyError: the model is invalid, or no tokenizer.json gives its ids.
    """
    if findings := [*islice(_find_faults(model), MAX_FINDINGS)]:
        raise VocabularyError(findings)
    user_defined = sorted(model.texts(PieceType.USER_DEFINED), key=len, reverse=True)
    is_unigram = model.type == ModelType.UNIGRAM
    isolated = [] if is_unigram else user_defined
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [*_normalizers(model)]},
        "pre_tokenizer": _pre_tokenizer(model, isolated),
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [*_decoders(model)]},
        "model": _unigram(model) if is_unigram else _bpe(model, ignores_merges=bool(isolated)),
    }


def entry_of(piece: Piece) -> str:
    """Return the entry of a piece in the vocabulary of the library."""
    match piece.type:
        case PieceType.CONTROL:
            return f" {piece.text}"
        case PieceType.UNKNOWN:
            return f"{piece.text} "
        case PieceType.UNUSED:
            return f"{piece.text} \t"
    return piece.text


def find_unknown_id(model: ModelFile) -> int:
    """Return the id of the unknown piece.

    Raises:
        VocabularyError: the model has none, or several.
    """
    found = [i for i, piece in enumerate(model.pieces) if piece.type == PieceType.UNKNOWN]
    if len(found) != 1:
        raise VocabularyError.at("pieces", f"{len(found)} pieces are of the type unknown, not one")
    return found[0]


def refuse_long_pieces(model: ModelFile) -> None:
    """Refuse pieces that would take too long to read.

    Raises:
        VocabularyError: there are such pieces.
    """
    if findings := [*islice(_find_long(model), MAX_FINDINGS)]:
        raise VocabularyError(findings)


def _find_long(model: ModelFile) -> Iterator[Finding]:
    lengths = [len(piece.text) for piece in model.pieces]
    for i, length in enumerate(lengths):
        if length > MAX_LENGTH:
            yield Finding(f"pieces[{i}]", f"has {length} characters; at most {MAX_LENGTH} are read")
    if sum(lengths) > MAX_CHARACTERS:
        yield Finding(
            "pieces", f"have {sum(lengths)} characters; at most {MAX_CHARACTERS} are read"
        )
    num_defined = sum(map(len, model.texts(PieceType.USER_DEFINED)))
    if num_defined > MAX_USER_DEFINED:
        message = f"user-defined symbols have {num_defined} characters"
        yield Finding("pieces", f"{message}; at most {MAX_USER_DEFINED} are read")


def _find_faults(model: ModelFile) -> Iterator[Finding]:
    find_unknown_id(model)
    if model.type not in (ModelType.UNIGRAM, ModelType.BPE, ModelType.CHAR):
        message = "only unigram, bpe and char are read"
        name = ModelType(model.type).name.lower() if model.type in [*ModelType] else model.type
        yield Finding("trainer_spec.model_type", f"is {name}; {message}")
    if model.whitespace_is_suffix:
        message = "a space behind its word is not read; only one in front of it is"
        yield Finding("trainer_spec.treat_whitespace_as_suffix", message)
    if not model.escape_whitespaces:
        yield Finding("normalizer_spec.escape_whitespaces", 'spaces that are not "▁" are not read')
    if model.denormalizer:
        yield Finding("denormalizer_spec", "rules for decoded texts are not read")
    seen: dict[str, int] = {}
    for i, piece in enumerate(model.pieces):
        if (before := seen.setdefault(piece.text, i)) != i:
            yield Finding(f"pieces[{i}]", f"{piece.text!r} is also pieces[{before}]")
        if piece.type == PieceType.NORMAL and " " in piece.text:
            yield Finding(f"pieces[{i}]", f"{piece.text!r} has a space, which never matches")
        if piece.type == PieceType.USER_DEFINED and (
            " " in piece.text or find_rewritten(model.charsmap, piece.text)
        ):
            message = f"{piece.text!r} is user-defined, and the normalizer would change it"
            yield Finding(f"pieces[{i}]", f"{message}; convert the model to a tokenizer.json")
    yield from _find_byte_faults(model)


def _find_byte_faults(model: ModelFile) -> Iterator[Finding]:
    found = set(model.texts(PieceType.BYTE))
    if model.byte_fallback and found != {f"<0x{byte:02X}>" for byte in range(256)}:
        yield Finding("pieces", "byte_fallback needs the 256 pieces <0x00> to <0xFF>")
    if found and not model.byte_fallback:
        yield Finding("trainer_spec.byte_fallback", "is false, but there are pieces of bytes")


def _normalizers(model: ModelFile) -> Iterator[dict[str, Any]]:
    if model.charsmap:
        returned, newline = (find_replacement(model.charsmap, each) for each in (b"\r", b"\n"))
        if returned == newline is not None:
            # The library applies one rule to "\r\n", SentencePiece one to each of the two.
            yield _replace("\r\n", "\n\n")
        charsmap = b64encode(model.charsmap).decode()
        yield {"type": "Precompiled", "precompiled_charsmap": charsmap}
    if model.remove_extra_whitespaces:
        yield _replace_regex(r"\A +", "")
        yield _replace_regex(" {2,}", " ")
    if model.add_dummy_prefix:
        yield {"type": "Prepend", "prepend": " "}
    yield _replace(" ", SPACE)
    if model.remove_extra_whitespaces:
        # As in SentencePiece, this also removes a "▁" at the end of the text itself.
        yield _replace_regex(TRAILING_SPACE_SYMBOLS, "")


def _pre_tokenizer(model: ModelFile, isolated: list[str]) -> dict[str, Any] | None:
    """Cut out user-defined symbols, and cut apart texts that read like a piece of a byte."""
    steps = []
    if isolated:
        steps.append(_split("|".join(map(_escape, isolated))))
    if model.byte_fallback and model.type == ModelType.UNIGRAM:
        steps.append(_split(BYTE_NAME))
    elif model.byte_fallback and isolated:
        steps.append(_split(WHOLE_BYTE_NAME))
    return {"type": "Sequence", "pretokenizers": steps} if steps else None


def _decoders(model: ModelFile) -> Iterator[dict[str, Any]]:
    yield _replace_regex(r"\A [\s\S]*", "")  # Control pieces.
    yield _replace_regex(r" \t\z", "")  # The end of unused ones.
    [unknown] = model.texts(PieceType.UNKNOWN)
    yield _replace(f"{unknown} ", model.unk_surface)
    if model.byte_fallback:
        yield {"type": "ByteFallback"}
    yield {"type": "Fuse"}
    if model.remove_extra_whitespaces:
        yield _replace_regex(rf"\A{SPACE}+", "")
    elif model.add_dummy_prefix:
        yield _replace_regex(rf"\A{SPACE}", "")
    yield _replace(SPACE, " ")


def _unigram(model: ModelFile) -> dict[str, Any]:
    """Write a Unigram model; user-defined symbols score higher than any other way to write them."""
    normal = [piece.score for piece in model.pieces if piece.type == PieceType.NORMAL]
    lowest, highest = min(normal, default=0.0), max(normal, default=0.0)
    vocab: list[list[Any]] = []
    for piece in model.pieces:
        score = piece.score if piece.type == PieceType.NORMAL else lowest
        if piece.type == PieceType.USER_DEFINED:
            score = len(piece.text.encode()) * highest - 0.1
        vocab.append([entry_of(piece), score])
    return {
        "type": "Unigram",
        "unk_id": find_unknown_id(model),
        "vocab": vocab,
        "byte_fallback": model.byte_fallback,
    }


def _bpe(model: ModelFile, *, ignores_merges: bool) -> dict[str, Any]:
    """Write a BPE model; one of characters is a BPE without merges."""
    vocab = {entry_of(piece): i for i, piece in enumerate(model.pieces)}
    merges: list[list[str]] = []
    if model.type == ModelType.BPE:
        found = find_merges(model)
        merges = [[pair.left, pair.right] for pair in found.pairs]
        for character in sorted(found.bytes_instead):
            # The byte's piece is used for this character only, so it can have its name.
            vocab[character] = vocab.pop(f"<0x{ord(character):02X}>")
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": entry_of(model.pieces[find_unknown_id(model)]),
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": model.byte_fallback,
        "ignore_merges": ignores_merges,
        "vocab": vocab,
        "merges": merges,
    }


def _split(pattern: str) -> dict[str, Any]:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return step | {"invert": False}


def _replace_regex(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _replace(literal: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": literal}, "content": content}


def _escape(literal: str) -> str:
    """Escape a literal for Oniguruma."""
    return re.sub(r"[^\w\s]", lambda found: "\\" + found[0], literal, flags=re.ASCII)
