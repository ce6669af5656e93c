"""What comes with a vocabulary in tokenizer_config.json: special tokens by name, chat templates."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from service.store import Store
from vocabularies.vocabulary import VocabularyError

__all__ = ["CONFIG_FILE", "TokenizerConfig", "TokenizerConfigs"]

logger = logging.getLogger(__name__)
CONFIG_FILE = "tokenizer_config.json"
SUFFIX = ".config.json"
DEFAULT, TOOL_USE = "default", "tool_use"
SPECIAL_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True, slots=True)
class TokenizerConfig:
    """A tokenizer_config.json that was uploaded with a vocabulary.

    Attributes:
        values: the file's content.
    """

    values: dict[str, Any]

    @classmethod
    def of(cls, content: bytes, max_bytes: int) -> TokenizerConfig:
        """From the file's bytes.

        Raises:
            VocabularyError: it is no JSON object, or too large.
        """
        if len(content) > max_bytes:
            message = f"{len(content)} bytes; max_template_bytes is {max_bytes}"
            raise VocabularyError.at(CONFIG_FILE, message)
        try:
            values = json.loads(content)
        except ValueError as error:
            raise VocabularyError.at(CONFIG_FILE, f"is no JSON: {error}") from error
        if not isinstance(values, dict):
            raise VocabularyError.at(CONFIG_FILE, "is no JSON object")
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise VocabularyError.at(CONFIG_FILE, "holds half of a surrogate pair") from error
        return cls(values)

    def special_tokens(self) -> dict[str, str]:
        """bos_token, eos_token and the others that are named, as strings."""
        found = {}
        for name in SPECIAL_NAMES:
            value = self.values.get(f"{name}_token")
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                found[f"{name}_token"] = value
        return found

    def template(self, *, has_tools: bool) -> str | None:
        """The chat template, of several the one for calls with tools or the default one."""
        value = self.values.get("chat_template")
        if isinstance(value, list):
            each_one = [each for each in value if isinstance(each, dict)]
            named = {each.get("name"): each.get("template") for each in each_one}
            value = (named.get(TOOL_USE) if has_tools else None) or named.get(DEFAULT)
        return value if isinstance(value, str) else None


class TokenizerConfigs:
    """The configurations of the uploaded vocabularies, by name.

    Args:
        store: where they are kept.
        max_bytes: the largest that is read.
    """

    def __init__(self, store: Store, max_bytes: int) -> None:
        self.store = store
        self._configs: dict[str, TokenizerConfig] = {}
        for name, path in store.files(SUFFIX):
            try:
                self._configs[name] = TokenizerConfig.of(path.read_bytes(), max_bytes)
            except VocabularyError as error:
                logger.warning("store: %s is not used: %s", path.name, error)

    def get(self, name: str) -> TokenizerConfig | None:
        """What came with a vocabulary; None where nothing did."""
        return self._configs.get(name)

    def put(self, name: str, config: TokenizerConfig | None) -> None:
        """Keep what came with a vocabulary, or forget what came before."""
        if config is None:
            self._configs.pop(name, None)
            self.store.remove(name + SUFFIX)
        else:
            self._configs[name] = config
            self.store.write(name + SUFFIX, json.dumps(config.values).encode())
