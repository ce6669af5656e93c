"""Reads and writes vocab_config.json, which contains a k-mer or character vocabulary and its rule.

`save_pretrained` writes only this file. `{"model_type": "kmer", "k": 6}` is the 6-mer vocabulary of
the mtDNA model. All fields but k have defaults:

    model_type        "kmer" or "character"
    k, letters        length of the k-mers, their letters in counting order ("ACGT")
    stride, frame, remainder, case, whitespace, circular, junction, max_piece_tokens
                      as in types.Kmers (stride 1, "sequence", "drop", "upper", "letter",
                      false, "append", null)
    first_kmer_id     id of the first k-mer (the number of special tokens)
    letter_ids        {"A": 4102, ...}, ids of single letters
    unit              for characters: "codepoint" or "byte"
    special_tokens    [{"content": "[PAD]", "id": 0, ...}] with the flags of
                      types.SpecialToken, or only contents in order of their ids; default: the
                      six of the mtDNA model, which are not matched in the sequence
    unk_token_id, pad_token_id, bos_token_id, eos_token_id, cls_token_id, sep_token_id,
    mask_token_id     by default guessed from the special tokens
    begin_token_ids, end_token_ids
                      ids put around a sequence ([])
    padding_side      "right" or "left"
    vocab_size        number of ids, checked where given

Fields that transformers itself writes into a config are ignored; any other is refused.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, get_type_hints

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import MAX_TOKENS, parse_json
from vocabularies.formats.special_token_roles import guess_roles
from vocabularies.formats.typed_json import as_type
from vocabularies.formats.word_lists.published_rules import MTDNA
from vocabularies.formats.word_lists.vocab_files import all_kmers
from vocabularies.model.checks import MAX_K
from vocabularies.model.types import ROLES, Characters, Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary

CONFIG_NAME = "vocab_config.json"
_MODELS = {"kmer": Kmers, "character": Characters}
_RENAMED = {"first_id": "first_kmer_id", "unknown_id": "unk_token_id"}
_OTHER_FIELDS = {
    "model_type": str,
    "vocab_size": int,
    "padding_side": str,
    "begin_token_ids": tuple[int, ...],
    "end_token_ids": tuple[int, ...],
    "special_tokens": tuple[SpecialToken, ...],
    "letter_ids": dict,
    **{f"{role}_token_id": int | None for role in ROLES},
}
_IGNORED_FIELDS = {"transformers_version", "architectures", "auto_map", "_name_or_path", "dtype"}
_IGNORED_FIELDS |= {"torch_dtype", "tokenizer_class"}


def save_pretrained(vocabulary: Vocabulary, folder: str | Path) -> None:
    """Write vocab_config.json into a folder; the folder is created if it does not exist.

    Raises:
        VocabularyError: as `write_kmer_config`.
    """
    content = write_kmer_config(vocabulary)
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / CONFIG_NAME).write_bytes(content)


def from_pretrained(folder: str | Path) -> Vocabulary:
    """Read the vocab_config.json of a folder.

    Raises:
        VocabularyError: as `read_kmer_config`.
        OSError: the file does not exist.
    """
    return read_kmer_config((Path(folder) / CONFIG_NAME).read_bytes())


def read_kmer_config(data: bytes, max_tokens: int = MAX_TOKENS) -> Vocabulary:
    """Read the vocabulary of a vocab_config.json.

    Args:
        data: the file.
        max_tokens: the largest number of ids; the 4^12 12-mers of four letters need 2 GiB.

    Raises:
        VocabularyError: some fields are invalid; the error lists each.
    """
    config = parse_json(data)
    if not isinstance(config, dict):
        raise VocabularyError.at("vocab_config.json", "must be an object")
    model_type = config.get("model_type", "kmer")
    if not isinstance(model_type, str) or model_type not in _MODELS:
        message = f"{model_type!r} is not one of {', '.join(_MODELS)}"
        raise VocabularyError.at("model_type", message)
    special = _special_tokens(config)
    fields = _fields(config, _MODELS[model_type], special)
    used = [token.id for token in special] + [i for _, i in fields.get("letter_ids", ())]
    if model_type == "kmer":
        used.append(fields["first_id"] + _num_kmers(fields, max_tokens) - 1)
    size = config.get("vocab_size", max(used, default=-1) + 1)
    if not max(used, default=0) < size <= max_tokens:
        message = f"{size} must be larger than every id and at most {max_tokens}"
        raise VocabularyError.at("vocab_size", message)
    model = _MODELS[model_type](**fields)
    return Vocabulary(
        tokens=_tokens(model, special, size),
        model=model,
        special_tokens=special,
        prefix=tuple(config.get("begin_token_ids", ())),
        suffix=tuple(config.get("end_token_ids", ())),
        roles=_roles(config, special),
        padding_side=_padding_side(config),
    )


def _special_tokens(config: dict[str, Any]) -> tuple[SpecialToken, ...]:
    entries = config.get("special_tokens", [*MTDNA])
    if not isinstance(entries, list):
        raise VocabularyError.at("special_tokens", "must be a list")
    matched = config.get("special_tokens") is not None
    tokens, findings = [], []
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            entry = {"content": entry, "id": i, "matched": matched}
        try:
            token: SpecialToken = as_type(SpecialToken, entry)
            if not 0 <= token.id < MAX_TOKENS:
                raise ValueError(f"id {token.id} is outside 0..{MAX_TOKENS - 1}")
            tokens.append(token)
        except (TypeError, ValueError) as error:
            findings.append(Finding(f"special_tokens[{i}]", str(error)))
    if findings:
        raise VocabularyError(findings)
    return tuple(tokens)


def _fields(
    config: dict[str, Any], model: type[Kmers | Characters], special: tuple[SpecialToken, ...]
) -> dict[str, Any]:
    """Read the fields of the model, check their types, and fill in defaults."""
    hints = get_type_hints(model)
    roles = guess_roles((token.content, token.id) for token in special)
    fields: dict[str, Any] = {"unknown_id": roles.get("unk")}
    if model is Kmers:
        fields |= {"case": "upper", "first_id": len(special)}
        fields |= {"stride": config.get("k", 1)} if config.get("frame") == "run" else {}
    known = {_RENAMED.get(name, name): name for name in hints}
    findings = []
    for name, value in config.items():
        if name not in known and name not in _OTHER_FIELDS and name not in _IGNORED_FIELDS:
            findings.append(Finding(name, f"no such field; there are {', '.join(sorted(known))}"))
        hint = hints[known[name]] if name in known else _OTHER_FIELDS.get(name)
        if hint is None or name == "special_tokens":
            continue
        if name == "letter_ids":
            is_object = isinstance(value, dict)
            hint = tuple[tuple[str, int], ...] if is_object else dict
            value = [*value.items()] if is_object else value
        try:
            value = as_type(hint, value)
        except (TypeError, ValueError) as error:
            findings.append(Finding(name, str(error)))
        if name in known:
            fields[known[name]] = value
    if model is Characters and "letter_ids" not in config:
        findings.append(Finding("letter_ids", "is missing"))
    if model is Kmers and "k" not in config:
        findings.append(Finding("k", "is missing"))
    if model is Kmers and fields["unknown_id"] is None:
        findings.append(Finding("unk_token_id", "is missing"))
    if findings:
        raise VocabularyError(findings)
    return fields


def _num_kmers(fields: dict[str, Any], max_tokens: int) -> int:
    k, num_letters = fields["k"], len(fields.get("letters", "ACGT"))
    in_range = 1 <= k <= MAX_K and num_letters**k <= max_tokens
    if not in_range or not 0 <= fields["first_id"] < max_tokens:
        message = f"k is {k}; there must be 1 to {max_tokens} k-mers"
        raise VocabularyError.at("k", message)
    return int(num_letters**k)


def _tokens(
    model: Kmers | Characters, special: tuple[SpecialToken, ...], size: int
) -> tuple[bytes | None, ...]:
    tokens: list[bytes | None] = [None] * size
    by_byte = isinstance(model, Characters) and model.unit == "byte"
    for letter, token_id in model.letter_ids:
        if 0 <= token_id < size:  # The checks of Vocabulary report ids outside of this range.
            tokens[token_id] = letter.encode("latin-1" if by_byte else "utf-8", "replace")
    if isinstance(model, Kmers):
        kmers = [word.encode() for word in all_kmers(model.letters, model.k)]
        end = min(model.first_id + len(kmers), size)
        tokens[model.first_id : end] = kmers[: end - model.first_id]
    for token in special:
        tokens[token.id] = token.content.encode()
    return tuple(tokens)


def _roles(config: dict[str, Any], special: tuple[SpecialToken, ...]) -> dict[str, int]:
    given = {role: config[f"{role}_token_id"] for role in ROLES if f"{role}_token_id" in config}
    if not given:
        return guess_roles((token.content, token.id) for token in special)
    return {role: token_id for role, token_id in given.items() if token_id is not None}


def _padding_side(config: dict[str, Any]) -> Any:
    side = config.get("padding_side", "right")
    if side not in ("right", "left"):
        raise VocabularyError.at("padding_side", f"is {side!r}; it must be right or left")
    return side


def write_kmer_config(vocabulary: Vocabulary) -> bytes:
    """Write the vocab_config.json of a k-mer or character vocabulary, with every field.

    Raises:
        VocabularyError: the file cannot represent the vocabulary.
    """
    model = vocabulary.model
    if not isinstance(model, Kmers | Characters):
        raise VocabularyError.at("model", "only k-mers and characters have a vocab_config.json")
    fields = {
        _RENAMED.get(field.name, field.name): getattr(model, field.name)
        for field in dataclasses.fields(model)
    }
    config = {
        "model_type": "kmer" if isinstance(model, Kmers) else "character",
        "vocab_size": len(vocabulary),
        **fields,
        "letter_ids": dict(model.letter_ids),
        "special_tokens": [dataclasses.asdict(token) for token in vocabulary.special_tokens],
        "begin_token_ids": vocabulary.prefix,
        "end_token_ids": vocabulary.suffix,
        "padding_side": vocabulary.padding_side,
        **{f"{role}_token_id": vocabulary.roles.get(role) for role in ROLES},
    }
    data = json.dumps(config, indent=1).encode()
    message = "vocab_config.json cannot describe the tokens or the unknown token of this vocabulary"
    try:
        again = read_kmer_config(data, max(MAX_TOKENS, len(vocabulary)))
    except VocabularyError as error:
        raise VocabularyError([Finding("tokens", message), *error.findings]) from error
    if again != vocabulary:
        raise VocabularyError.at("tokens", message)
    return data
