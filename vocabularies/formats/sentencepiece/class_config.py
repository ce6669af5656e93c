"""Reads the settings of a tokenizer class from the JSON files beside a SentencePiece model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import MAX_TOKENS, parse_json

CONFIG, TOKENS_MAP, ADDED = CONFIG_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
LISTED = "added_tokens_decoder"
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is matched as a whole; the fields are those of an entry of tokenizer.json."""

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = True


@dataclass(frozen=True, slots=True)
class ClassConfig:
    """The settings of a tokenizer class.

    Attributes:
        values: the content of tokenizer_config.json, and of special_tokens_map.json where the first
            says nothing.
        listed: the tokens that the files list with their ids.
    """

    values: dict[str, Any]
    listed: dict[int, AddedToken]

    @property
    def name(self) -> str | None:
        """The name of the class, without Fast; None if no file says it."""
        name = self.values.get("tokenizer_class")
        if name is not None and not isinstance(name, str):
            raise VocabularyError.at(f"{CONFIG}: tokenizer_class", f"{name!r} is not a text")
        return name and name.removesuffix("Fast")

    def flag(self, name: str, default: bool) -> bool:
        """Return a setting that is true or false; null is the default.

        Raises:
            VocabularyError: it is something else.
        """
        value = self.values.get(name)
        if not isinstance(value, bool | None):
            raise VocabularyError.at(f"{CONFIG}: {name}", f"{value!r} is not true or false")
        return default if value is None else value

    def number(self, name: str, default: int, largest: int) -> int:
        """Return a setting that is a number from 0 on.

        Raises:
            VocabularyError: it is something else, or too large.
        """
        value = self.values.get(name, default)
        if type(value) is not int or not 0 <= value <= largest:
            message = f"{value!r} is not a number of 0..{largest}"
            raise VocabularyError.at(f"{CONFIG}: {name}", message)
        return value

    def token(self, name: str, default: AddedToken | None) -> AddedToken | None:
        """Return a named token, such as bos_token; None if the files say that there is none.

        As in transformers, a list that has a token's flags counts for tokens that are not named,
        but not for the unknown one.
        """
        flags = self._listed_flags()
        if name not in self.values:
            return (
                flags.get(default.content, default) if default and name != "unk_token" else default
            )
        value = self.values[name]
        return None if value is None else _token(value, f"{CONFIG}: {name}", flags)

    def more_special_tokens(self) -> list[AddedToken]:
        """Return the special tokens without a name."""
        name = "additional_special_tokens"
        values = self.values.get(name) or []
        if not isinstance(values, list):
            raise VocabularyError.at(f"{CONFIG}: {name}", "is not a list")
        flags = self._listed_flags()
        return [_token(value, f"{CONFIG}: {name}[{i}]", flags) for i, value in enumerate(values)]

    def _listed_flags(self) -> dict[str, AddedToken]:
        """Return the tokens that are listed with their flags, by content."""
        if LISTED not in self.values:
            return {}
        return {token.content: token for token in self.listed.values()}


def read_class_config(files: Mapping[str, bytes]) -> ClassConfig:
    """Read the settings of a tokenizer class from the files that are there.

    Raises:
        VocabularyError: a file is invalid.
    """
    values = _object(files, CONFIG)
    listed: dict[int, AddedToken] = {}
    if LISTED not in values:  # Else transformers reads none of the older files.
        values = _object(files, TOKENS_MAP) | values
        for content, token_id in _object(files, ADDED).items():
            token = AddedToken(content, normalized=True, special=False)
            listed[_id(token_id, f"{ADDED}: {content}")] = token
    entries = values.get(LISTED) or {}
    if not isinstance(entries, dict):
        raise VocabularyError.at(f"{CONFIG}: {LISTED}", "is not a JSON object")
    for key, entry in entries.items():
        where = f"{CONFIG}: {LISTED}.{key}"
        token_id = _id(int(key) if key.isdecimal() and len(key) < 10 else key, where)
        listed[token_id] = _token(entry, where, {})
    return ClassConfig(values, listed)


def _object(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        content = parse_json(files.get(name, b"{}"))
    except VocabularyError as error:
        findings = (Finding(f"{name}: {f.where}", f.message) for f in error.findings)
        raise VocabularyError(findings) from error
    if not isinstance(content, dict):
        raise VocabularyError.at(name, "is not a JSON object")
    return content


def _id(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value < MAX_TOKENS:
        raise VocabularyError.at(where, f"{value!r} is not an id of 0..{MAX_TOKENS - 1}")
    return value


def _token(value: Any, where: str, listed: Mapping[str, AddedToken]) -> AddedToken:
    """Read a token from its content, or from an object with its content and flags."""
    if isinstance(value, str) and value:
        return listed.get(value, AddedToken(value))
    if isinstance(value, dict) and isinstance(content := value.get("content"), str) and content:
        flags = {name: value[name] for name in _FLAGS if name in value}
        if all(isinstance(flag, bool) for flag in flags.values()):
            return AddedToken(content, **flags)
    raise VocabularyError.at(where, "is neither a text nor an object with a content and flags")
