"""What comes with a vocabulary: special tokens by name, chat templates.

They are in tokenizer_config.json; newer models have the template in chat_template.jinja beside it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from service.store import Store
from vocabularies.canonical import sealed, unsealed
from vocabularies.formats.contents import decode_text, parse_json
from vocabularies.vocabulary import Finding, VocabularyError

__all__ = ["CONFIG_FILE", "TEMPLATE_FILE", "TokenizerConfig", "TokenizerConfigs"]

logger = logging.getLogger(__name__)
CONFIG_FILE, TEMPLATE_FILE = "tokenizer_config.json", "chat_template.jinja"
SUFFIX = ".config.json"
DEFAULT, TOOL_USE = "default", "tool_use"
SPECIAL_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True, slots=True)
class TokenizerConfig:
    """A tokenizer_config.json that was uploaded with a vocabulary, or what stands for it.

    Attributes:
        values: the file's content.
    """

    values: dict[str, Any]

    @classmethod
    def of(cls, content: bytes) -> TokenizerConfig:
        """From the file's bytes.

        Raises:
            VocabularyError: it is no JSON object.
        """
        try:
            values = parse_json(content)
        except VocabularyError as error:
            findings = (Finding(f"{CONFIG_FILE}: {f.where}", f.message) for f in error.findings)
            raise VocabularyError(findings) from error
        if not isinstance(values, dict):
            raise VocabularyError.at(CONFIG_FILE, "is no JSON object")
        return cls(values)

    @classmethod
    def of_files(cls, files: dict[str, bytes], max_bytes: int) -> TokenizerConfig | None:
        """Of what came with a vocabulary, taken out of its files; None where nothing did.

        Raises:
            VocabularyError: a file is wrong, or too large.
        """
        found = {name: files.pop(name) for name in (CONFIG_FILE, TEMPLATE_FILE) if name in files}
        for name, content in found.items():
            if len(content) > max_bytes:
                message = f"{len(content)} bytes; max_template_bytes is {max_bytes}"
                raise VocabularyError.at(name, message)
        if not found:
            return None
        config = cls.of(found.get(CONFIG_FILE, b"{}"))
        if TEMPLATE_FILE not in found:
            return config
        return cls(config.values | {"chat_template": decode_text(found[TEMPLATE_FILE])})

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
            named = {
                name: each.get("template")
                for each in each_one
                if isinstance(name := each.get("name"), str)
            }
            value = (named.get(TOOL_USE) if has_tools else None) or named.get(DEFAULT)
        return value if isinstance(value, str) else None


class TokenizerConfigs:
    """The configurations of the uploaded vocabularies, by name.

    Args:
        store: where they are kept; what is there was small enough when it came.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._configs: dict[str, TokenizerConfig] = {}
        for name, path in store.files(SUFFIX):
            try:
                self._configs[name] = TokenizerConfig.of(unsealed(path.read_bytes()))
            except (VocabularyError, OSError) as error:
                logger.error("store: %s is not used: %s", path.name, error)

    def get(self, name: str) -> TokenizerConfig | None:
        """What came with a vocabulary; None where nothing did."""
        return self._configs.get(name)

    def put(self, name: str, config: TokenizerConfig | None) -> None:
        """Keep what came with a vocabulary, or forget what came before."""
        if config is None:
            self.store.remove(name + SUFFIX)
            self._configs.pop(name, None)
        else:
            self.store.write(name + SUFFIX, sealed(json.dumps(config.values).encode()))
            self._configs[name] = config
