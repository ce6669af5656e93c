"""Reads and writes a vocabulary in any of the formats that vocabularies are published in.

tokenizer.json    Hugging Face tokenizers
tiktoken          rank files, lines "base64 rank"
tekken.json       Mistral's ranks, pretokenizer and control tokens; read only
sentencepiece     tokenizer.model, alone or with the configuration beside it; read only
vocab.json        with merges.txt: GPT-2's pair of files; alone: a k-mer or character list
vocab.txt         a k-mer or character list
kmer              vocab_config.json, a k-mer or character vocabulary with its rule
canonical         the canonical form, the bytes that the digest hashes
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.canonical_files import CHECKSUM_PREFIX, read_canonical, strip_checksum
from vocabularies.formats.huggingface.reader import (
    describe_unfollowed,
    read_tokenizer_document,
)
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.formats.parsing import parse_json, refuse_binary_files
from vocabularies.formats.sentencepiece.class_config import CONFIG_FILES
from vocabularies.formats.sentencepiece.model_file import is_sentencepiece
from vocabularies.formats.sentencepiece.reader import read_sentencepiece
from vocabularies.formats.tiktoken.ranks import is_rank_file, read_tiktoken, write_tiktoken
from vocabularies.formats.tiktoken.tekken import is_tekken, read_tekken
from vocabularies.formats.vocab_and_merges import read_bpe_files, write_bpe_files
from vocabularies.formats.word_lists.kmer_config import (
    CONFIG_NAME,
    read_kmer_config,
    write_kmer_config,
)
from vocabularies.formats.word_lists.vocab_files import (
    read_vocab_json,
    read_vocab_txt,
    write_word_list,
)
from vocabularies.model import canonical
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import find_pretokenizer

FORMATS = (
    "tokenizer.json",
    "tiktoken",
    "tekken.json",
    "sentencepiece",
    "vocab.json",
    "vocab.txt",
    "kmer",
    "canonical",
)
READ_ONLY = ("tekken.json", "sentencepiece")
WRITABLE_FORMATS = tuple(name for name in FORMATS if name not in READ_ONLY)
DECODERS = ("file", "inverse")
_ARGUMENTS = {
    "tiktoken": {"pretokenizer", "special_tokens", "id_offset"},
    "vocab.json": {"pretokenizer", "special_tokens"},
    "vocab.txt": {"special_tokens"},
}


class Reading(NamedTuple):
    """A vocabulary that was read from files.

    Attributes:
        vocabulary: the vocabulary.
        notes: descriptions of the settings in the files that the vocabulary ignores.
    """

    vocabulary: Vocabulary
    notes: tuple[str, ...] = ()


class _Detected(NamedTuple):
    """The format of files, and the content of a JSON file that was parsed to detect it."""

    kind: str
    document: Any = None


def read_vocabulary(
    files: Mapping[str, bytes],
    *,
    format: str = "auto",
    pretokenizer: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    id_offset: int = 0,
    decoder: str = "file",
) -> Vocabulary:
    """Read the vocabulary of one file, or of several that belong together.

    Arguments and errors are those of `read_with_notes`.
    """
    reading = read_with_notes(
        files,
        format=format,
        pretokenizer=pretokenizer,
        special_tokens=special_tokens,
        id_offset=id_offset,
        decoder=decoder,
    )
    return reading.vocabulary


def read_with_notes(
    files: Mapping[str, bytes],
    *,
    format: str = "auto",
    pretokenizer: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    id_offset: int = 0,
    decoder: str = "file",
) -> Reading:
    """Read the vocabulary of files, and describe what it ignores; parse each JSON file once.

    Args:
        files: file name -> content.
        format: one of FORMATS, or "auto": detected by the names and the content.
        pretokenizer: its name, for formats that do not store it.
        special_tokens: content -> id, for formats that do not store which tokens are special.
        id_offset: id = rank + id_offset, for rank files.
        decoder: how ids are decoded: "file": by the decoder of the file, as its library does;
            "inverse": to the encoded text.

    Raises:
        VocabularyError: a file or an argument is invalid; the error lists the place of every fault.
    """
    if not files:
        raise VocabularyError.at("files", "no file was given")
    refuse_binary_files(files)
    named = _base_names(files)
    if len(named) < len(files):
        raise VocabularyError.at("files", "two files have the same name")
    detected = _detect(named) if format == "auto" else _Detected(format)
    kind = detected.kind
    if kind not in FORMATS:
        message = f"unknown format {kind!r}; known are {', '.join(FORMATS)}"
        raise VocabularyError.at("format", message)
    arguments = {
        "pretokenizer": pretokenizer,
        "special_tokens": special_tokens,
        "id_offset": id_offset or None,
    }
    _check_arguments(kind, arguments)
    if decoder not in DECODERS:
        raise VocabularyError.at("decoder", f"{decoder!r} is not one of {', '.join(DECODERS)}")
    if kind == "tokenizer.json" and len(named) == 1:
        document = _parsed(detected, named)
        vocabulary = read_tokenizer_document(document, decodes_inversely=decoder == "inverse")
        return Reading(vocabulary, describe_unfollowed(document, vocabulary))
    if kind == "sentencepiece":
        return Reading(read_sentencepiece(named, decodes_inversely=decoder == "inverse"))
    vocabulary = _read(detected, named, pretokenizer, special_tokens, id_offset or None)
    if decoder == "inverse" and vocabulary.decoder != "inverse":
        vocabulary = dataclasses.replace(vocabulary, decoder="inverse")
    return Reading(vocabulary)


def with_configuration(
    files: Mapping[str, bytes], configuration: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return a vocabulary's files, with the configuration files that their format reads, too."""
    if not any(map(is_sentencepiece, files.values())):
        return dict(files)
    return {name: configuration[name] for name in CONFIG_FILES if name in configuration} | {**files}


def _base_names(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {PurePosixPath(name.replace("\\", "/")).name: data for name, data in files.items()}


def _check_arguments(kind: str, arguments: Mapping[str, object]) -> None:
    for name, value in arguments.items():
        if value is not None and name not in _ARGUMENTS.get(kind, set()):
            raise VocabularyError.at(
                name, f"must not be given, because a file of the format {kind} contains it"
            )
    rule = arguments["pretokenizer"]
    if isinstance(rule, str):
        try:
            find_pretokenizer(rule)
        except ValueError as error:
            raise VocabularyError.at("pretokenizer", str(error)) from error


def _parsed(detected: _Detected, files: Mapping[str, bytes]) -> Any:
    """Return the content of a single JSON file."""
    [data] = files.values()
    return parse_json(data) if detected.document is None else detected.document


def _read(
    detected: _Detected,
    files: Mapping[str, bytes],
    pretokenizer: str | None,
    special_tokens: Mapping[str, int] | None,
    id_offset: int | None,
) -> Vocabulary:
    kind = detected.kind
    if len(files) > 1:
        return _read_several(kind, files, pretokenizer, special_tokens)
    [data] = files.values()
    match kind:
        case "tiktoken":
            return read_tiktoken(
                data,
                pretokenizer=pretokenizer,
                special_tokens=special_tokens,
                id_offset=id_offset,
            )
        case "tekken.json":
            return _read_tekken(_parsed(detected, files))
        case "kmer":
            return read_kmer_config(data)
        case "canonical":
            return read_canonical(strip_checksum(data))
    if pretokenizer is not None or files.keys() == {"merges.txt"}:
        message = "BPE needs vocab.json and merges.txt together; a list of k-mers is not split"
        raise VocabularyError.at("files", message)
    return _read_list(kind, data, special_tokens)


def _read_several(
    kind: str,
    files: Mapping[str, bytes],
    pretokenizer: str | None,
    special_tokens: Mapping[str, int] | None,
) -> Vocabulary:
    if kind == "vocab.json" and files.keys() == {"vocab.json", "merges.txt"}:
        vocab, merges = files["vocab.json"], files["merges.txt"]
        return read_bpe_files(
            vocab, merges, pretokenizer=pretokenizer, special_tokens=special_tokens
        )
    if kind == "kmer" and files.keys() == {CONFIG_NAME, "vocab.json"}:
        return _read_folder(files)
    message = f"{', '.join(sorted(files))} are not the files of the format {kind}"
    raise VocabularyError.at("files", message)


def _read_tekken(document: Any) -> Vocabulary:
    if not is_tekken(document):
        message = "a tekken.json must have an object config with default_num_special_tokens"
        raise VocabularyError.at("config", message)
    return read_tekken(document)


def _read_list(kind: str, data: bytes, special_tokens: Mapping[str, int] | None) -> Vocabulary:
    """Read a list of words; the error says that the file was read as such a list."""
    try:
        return (read_vocab_json if kind == "vocab.json" else read_vocab_txt)(data, special_tokens)
    except VocabularyError as error:
        message = f"cannot be read as {kind}, because it is not a list of all k-mers or of letters"
        raise VocabularyError([*error.findings, Finding("files", message)]) from error


def _read_folder(files: Mapping[str, bytes]) -> Vocabulary:
    """Read vocab_config.json, and check that the vocab.json beside it has the same tokens."""
    vocabulary = read_kmer_config(files[CONFIG_NAME])
    if read_vocab_json(files["vocab.json"]).tokens != vocabulary.tokens:
        raise VocabularyError.at("vocab.json", f"has other tokens than {CONFIG_NAME} describes")
    return vocabulary


def _detect(files: Mapping[str, bytes]) -> _Detected:
    """Detect the format by the names of the files, else by the beginning of the content."""
    names = files.keys()
    if any(map(is_sentencepiece, files.values())):
        return _Detected("sentencepiece")
    if CONFIG_NAME in names:
        return _Detected("kmer")
    if "merges.txt" in names or names == {"vocab.json"}:
        return _Detected("vocab.json")
    [(name, data), *_] = files.items()
    if name in ("tokenizer.json", "tekken.json", "vocab.txt"):
        return _Detected(name)
    if data.startswith((canonical.MAGIC, CHECKSUM_PREFIX)):
        return _Detected("canonical")
    if name == "tokenizer_config.json":
        raise _config_alone_error()
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        document = parse_json(data)
        return _Detected(_detect_document(document), document)
    if name.endswith(".tiktoken") or is_rank_file(data):
        return _Detected("tiktoken")
    if name.endswith(".model"):
        return _Detected("sentencepiece")  # A damaged one, whose fault the reader describes.
    return _Detected("vocab.txt")


def _config_alone_error() -> VocabularyError:
    message = "a tokenizer_config.json has no ids; send the tokenizer.json of the same model"
    return VocabularyError.at("files", message)


def _detect_document(document: dict[str, Any]) -> str:
    """Detect the format by a field that only it has; anything else is read as tokenizer.json."""
    if "model" in document and "added_tokens" in document:
        return "tokenizer.json"
    if is_tekken(document):
        return "tekken.json"
    if "tokenizer_class" in document:
        raise _config_alone_error()
    if isinstance(document.get("model_type"), str):
        return "kmer"
    if any(type(token_id) is int for token_id in document.values()):
        return "vocab.json"
    return "tokenizer.json"


def write_vocabulary(vocabulary: Vocabulary, format: str) -> dict[str, bytes]:
    """Write the files of a vocabulary: file name -> content.

    Raises:
        VocabularyError: there is no such format, or it cannot represent the vocabulary.
    """
    match format:
        case "tokenizer.json":
            return {"tokenizer.json": tokenizer_json(vocabulary).encode()}
        case "tiktoken":
            return {"vocabulary.tiktoken": write_tiktoken(vocabulary)}
        case "vocab.json" if isinstance(vocabulary.model, Bpe):
            return write_bpe_files(vocabulary)
        case "vocab.json" | "vocab.txt":
            return write_word_list(vocabulary, as_json=format == "vocab.json")
        case "kmer":
            return {CONFIG_NAME: write_kmer_config(vocabulary)}
        case "tekken.json" | "sentencepiece":
            raise VocabularyError.at("format", f"{format} cannot be written; write tokenizer.json")
        case "canonical":
            return {"vocabulary.canonical": canonical.to_bytes(vocabulary)}
    message = f"unknown format {format!r}; known are {', '.join(FORMATS)}"
    raise VocabularyError.at("format", message)
