"""Reads and stores the tokenizer configurations of vocabularies: named tokens and chat templates.

tokenizer_config.json contains both. Newer models store the template in chat_template.jinja, models
with a processor in chat_template.json, and older ones store named tokens in
special_tokens_map.json. generation_config.json contains the model's default sampling parameters,
which rendered requests pass to the inference engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import decode_text, parse_json
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

CONFIG_FILE, TEMPLATE_FILE = "tokenizer_config.json", "chat_template.jinja"
TOKENS_FILE, GENERATION_FILE = "special_tokens_map.json", "generation_config.json"
PROCESSOR_FILE = "chat_template.json"
ADDED_FILE = "added_tokens.json"  # Of older models.
CONFIG_FILES = (CONFIG_FILE, TEMPLATE_FILE, PROCESSOR_FILE, TOKENS_FILE, GENERATION_FILE)
GENERATION = "generation_config"  # The key of the default sampling parameters.
# The default sampling parameters that rendered requests pass on.
NUMBERS = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_new_tokens",
)
DEFAULT, TOOL_USE = "default", "tool_use"
LISTED = "added_tokens_decoder"
MAX_FINDINGS = 100
# Named tokens that transformers adds to a tokenizer which does not have them.
NAMED_TOKENS = tuple(f"{each}_token" for each in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
EXTRA_TOKENS = ("additional_special_tokens", "extra_special_tokens")
SIDES = ("padding_side", "truncation_side")
# Tokenizers that split text as this service does for vocab.json, and add no tokens.
GPT2_CLASSES = ("GPT2Tokenizer", "GPT2TokenizerFast", "CodeGenTokenizer", "CodeGenTokenizerFast")
# Tokenizers of transformers 5, with or without "Fast", that obey add_prefix_space beside a
# tokenizer.json of byte-level BPE. PreTrainedTokenizerFast and others do not.
PREFIX_CLASSES = (
    "BartTokenizer",
    "BlenderbotTokenizer",
    "CodeGenTokenizer",
    "CohereTokenizer",
    "DebertaTokenizer",
    "GPT2Tokenizer",
    "GPTNeoXTokenizer",
    "LEDTokenizer",
    "LongformerTokenizer",
    "Qwen2Tokenizer",
    "RobertaTokenizer",
    "WhisperTokenizer",
)


@dataclass(frozen=True, slots=True)
class TokenizerConfig:
    """A tokenizer_config.json, or only a chat template, that was uploaded with a vocabulary.

    Attributes:
        values: the content of the file, merged with that of the other files.
    """

    values: dict[str, Any]

    @classmethod
    def of(cls, content: bytes, file: str = CONFIG_FILE) -> TokenizerConfig:
        """Parse the bytes of a file; `file` is its name, for a refusal.

        Raises:
            VocabularyError: the bytes are not a JSON object.
        """
        try:
            values = parse_json(content)
        except VocabularyError as error:
            findings = (Finding(f"{file}: {f.where}", f.message) for f in error.findings)
            raise VocabularyError(findings) from error
        if not isinstance(values, dict):
            raise VocabularyError.at(file, "is not a JSON object")
        return cls(values)

    @classmethod
    def of_files(cls, files: dict[str, bytes], max_bytes: int) -> TokenizerConfig | None:
        """Read the configuration from a vocabulary's files; return None if they contain none.

        Raises:
            VocabularyError: a file is invalid or too large.
        """
        found = {name: files.pop(name) for name in CONFIG_FILES if name in files}
        for name, content in found.items():
            if len(content) > max_bytes:
                message = f"has {len(content)} bytes; max_template_bytes is {max_bytes}"
                raise VocabularyError.at(name, message)
        if not found:
            return None
        values = cls.of(found.get(CONFIG_FILE, b"{}")).values
        if TOKENS_FILE in found:
            named = cls.of(found[TOKENS_FILE], TOKENS_FILE).values
            # As in transformers, which reads this file for configurations that list no tokens.
            values = named | values if LISTED in values else values | named
        if PROCESSOR_FILE in found and not values.get("chat_template"):
            template = cls.of(found[PROCESSOR_FILE], PROCESSOR_FILE).values.get("chat_template")
            values = values | {"chat_template": template}
        if TEMPLATE_FILE in found:
            values = values | {"chat_template": decode_text(found[TEMPLATE_FILE])}
        if GENERATION_FILE in found:
            defaults = cls.of(found[GENERATION_FILE], GENERATION_FILE).values
            _check_numbers(defaults)
            values = values | {GENERATION: defaults}
        _check_templates(values.get("chat_template"))
        return cls(values)

    def listed_tokens(self) -> dict[str, int] | None:
        """Return the ids of the listed tokens by their contents; None if none are listed."""
        listed = self.values.get(LISTED)
        found = {}
        for token_id, token in (listed if isinstance(listed, dict) else {}).items():
            content = token.get("content") if isinstance(token, dict) else token
            if isinstance(content, str) and token_id.isdecimal():
                found[content] = int(token_id)
        return found or None

    def generation_defaults(self) -> dict[str, Any]:
        """Return the model's default sampling parameters; {} if it has none."""
        values = self.values.get(GENERATION)
        return values if isinstance(values, dict) else {}

    def refuse_other_ids(self, vocabulary: Vocabulary) -> None:
        """Check that the vocabulary contains each token that the file lists, with the same id.

        Raises:
            VocabularyError: a token differs, special tokens are not matched, or a blank is put
                before texts; the error contains the place of each such token.
        """
        kind = str(self.values.get("tokenizer_class")).removesuffix("Fast")
        adds_prefix = self.values.get("add_prefix_space") is True and kind in PREFIX_CLASSES
        if adds_prefix and isinstance(vocabulary.model, Bpe):
            message = "the vocabulary's own file says that no blank is put before a text"
            raise VocabularyError.at(f"{CONFIG_FILE}: add_prefix_space", message)
        if self.values.get("split_special_tokens") is True:
            message = "special tokens in a text are always matched here"
            raise VocabularyError.at(f"{CONFIG_FILE}: split_special_tokens", message)
        listed = self.values.get(LISTED) or {}
        if not isinstance(listed, dict):
            raise VocabularyError.at(f"{CONFIG_FILE}: {LISTED}", "is not a JSON object")
        contents = {str(token.id): token.content for token in vocabulary.special_tokens}
        findings = []
        for token_id, token in listed.items():
            content = token.get("content") if isinstance(token, dict) else token
            if token_id not in contents or contents[token_id] != content:
                message = (
                    f"{content!r} is not a special or added token of the vocabulary with this id"
                )
                findings.append(Finding(f"{CONFIG_FILE}: {LISTED}.{token_id}", message))
        if findings:
            raise VocabularyError(findings[:MAX_FINDINGS])

    def describe_unfollowed(self, vocabulary: Vocabulary) -> tuple[str, ...]:
        """Describe what transformers follows and this service does not.

        Raises:
            VocabularyError: a named token is neither a string nor an object with a content.
        """
        notes = []
        contents = set(vocabulary.contents.values())
        for name, value in self._named_tokens():
            content = value.get("content") if isinstance(value, dict) else value
            if not isinstance(content, str):
                message = "must be a string, or an object with a content"
                raise VocabularyError.at(f"{CONFIG_FILE}: {name}", message)
            if content and content not in contents:
                notes.append(
                    f"{name} {content[:80]!r} of {CONFIG_FILE} is not followed: transformers makes "
                    "it a special token, here it is ordinary text; add it to tokenizer.json"
                )
        for name in SIDES:
            side = vocabulary.padding_side if name == "padding_side" else "right"
            if (value := self.values.get(name)) is not None and value != side:
                notes.append(f"{name} of {CONFIG_FILE} is not followed, requests have {name}")
        return tuple(notes[:MAX_FINDINGS])

    def _named_tokens(self) -> Iterator[tuple[str, Any]]:
        for name in NAMED_TOKENS:
            if self.values.get(name) is not None:
                yield name, self.values[name]
        for name in EXTRA_TOKENS:
            extra = self.values.get(name)
            listed = enumerate(extra) if isinstance(extra, list) else ()
            for key, value in extra.items() if isinstance(extra, dict) else listed:
                yield f"{name}.{key}", value

    def refuse_other_added_tokens(self, content: bytes, vocabulary: Vocabulary) -> None:
        """Check that the vocabulary contains the tokens of an added_tokens.json.

        As in transformers, the file does not count if the configuration lists tokens itself.

        Raises:
            VocabularyError: the file is not a JSON object, or a token differs.
        """
        added = self.of(content, ADDED_FILE).values
        if LISTED in self.values:
            return
        ids = {token.content: token.id for token in vocabulary.special_tokens}
        message = "is not an added token of tokenizer.json with this id"
        findings = [
            Finding(f"{ADDED_FILE}: {token}", message)
            for token, token_id in added.items()
            if ids.get(token) != token_id
        ]
        if findings:
            raise VocabularyError(findings[:MAX_FINDINGS])

    def refuse_other_rule(self, *, has_pretokenizer: bool) -> None:
        """Check that vocab.json and merges.txt alone define the tokenizer that this file names.

        Raises:
            VocabularyError: the tokenizer does not split text like GPT-2, or adds a prefix to it.
        """
        kind = self.values.get("tokenizer_class")
        if kind is not None and kind not in GPT2_CLASSES and not has_pretokenizer:
            message = f"vocab.json and merges.txt do not say how {kind} splits text"
            message = f"{message}; send tokenizer.json, or name a pretokenizer"
            raise VocabularyError.at(f"{CONFIG_FILE}: tokenizer_class", message)
        for name in ("add_prefix_space", "add_bos_token"):
            if self.values.get(name) is True:
                message = "vocab.json and merges.txt do not say so; send tokenizer.json"
                raise VocabularyError.at(f"{CONFIG_FILE}: {name}", message)

    def special_tokens(self) -> dict[str, str]:
        """Return bos_token, image_token and all other named tokens, as strings."""
        extra = self.values.get("extra_special_tokens")
        named = {name: value for name, value in self.values.items() if name.endswith("_token")}
        found = {}
        for name, value in ((extra if isinstance(extra, dict) else {}) | named).items():
            content = value.get("content") if isinstance(value, dict) else value
            if isinstance(content, str):
                found[name] = content
        return found

    def template(self, *, has_tools: bool) -> str | None:
        """Return the chat template; of several, that for chats with tools or the default one."""
        value = self.values.get("chat_template")
        if isinstance(value, list | dict):
            named = {each["name"]: each["template"] for each in list_templates(value)}
            value = (named.get(TOOL_USE) if has_tools else None) or named.get(DEFAULT)
        return value if isinstance(value, str) else None


def list_templates(value: Any) -> list[dict[str, Any]]:
    """Return the templates in a configuration, each with its name; a single one is the default.

    Several are a list of objects with name and template, or an object that has them by name.
    """
    if isinstance(value, str):
        return [{"name": DEFAULT, "template": value}]
    if isinstance(value, dict):
        return [{"name": name, "template": template} for name, template in value.items()]
    return [
        {"name": each["name"], "template": each.get("template")}
        for each in (value if isinstance(value, list) else [])
        if isinstance(each, dict) and isinstance(each.get("name"), str)
    ]


def _check_templates(value: Any) -> None:
    """Check the form of the chat templates of a configuration; null means none.

    Raises:
        VocabularyError: they are no text, list or object, or one that is used is no text.
    """
    is_known = value is None or isinstance(value, str | list | dict)
    named = {each["name"]: each["template"] for each in list_templates(value)}
    used = [named[name] for name in (DEFAULT, TOOL_USE) if name in named]
    if not is_known or not all(isinstance(each, str) for each in used):
        message = "must be a text, or texts by name in an object or a list"
        raise VocabularyError.at(f"{CONFIG_FILE}: chat_template", message)


def _check_numbers(defaults: dict[str, Any]) -> None:
    """Check the default sampling parameters of a model.

    Raises:
        VocabularyError: one that rendered requests pass on is not a number.
    """
    for name in NUMBERS:
        value = defaults.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise VocabularyError.at(f"{GENERATION_FILE}: {name}", "is not a number")
