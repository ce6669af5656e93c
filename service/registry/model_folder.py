"""Reads the tokenizer, the configurations and the names of a model from its folder.

tokenizer.json, or a file of another format              the vocabulary
tokenizer_config.json, special_tokens_map.json           named tokens
chat_template.jinja, additional_chat_templates/*.jinja   templates; else chat_template.json
generation_config.json                                   default sampling parameters
config.json                                              the model's length, and its origin
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.core.settings import PREFIX, Settings
from service.registry.names import find_name_fault
from service.registry.tokenizer_config import (
    ADDED_FILE,
    CONFIG_FILES,
    TokenizerConfig,
    list_templates,
)
from service.security.addresses import split_names
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_with_notes
from vocabularies.formats.folders import find_tokenizer_files
from vocabularies.formats.parsing import decode_text
from vocabularies.formats.tiktoken.ranks import is_rank_file
from vocabularies.model.vocabulary import Vocabulary

LENGTH = "model_max_length"
OTHER_TEMPLATES = "additional_chat_templates"  # A folder with one file for each template.
# Keys of config.json for the model's length in ids.
LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
)
HUB_PREFIX = "models--"  # The prefix of folders in the Hugging Face hub's cache.
MAX_NAME_CHARACTERS = 255
MAX_TEMPLATE_BYTES: int = Settings.model_fields["max_template_bytes"].default


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was read from a folder.

    Attributes:
        vocabulary: its vocabulary.
        config: its configuration; `model_max_length` contains the model's length in ids.
        notes: the settings in its files that the service ignores.
    """

    vocabulary: Vocabulary
    config: TokenizerConfig
    notes: tuple[str, ...]


def use_model(settings: Settings) -> Settings:
    """Return the settings with the model of `model_dir`, if it is set, as the default vocabulary.

    Raises:
        ValueError: the folder or a name is invalid.
    """
    if settings.model_dir is None:
        return settings
    name = find_model_names(settings)[0]
    return settings.model_copy(update={"default_vocabulary": name, "preload": name})


def find_model_names(settings: Settings) -> list[str]:
    """List the names of the model of `model_dir`: its own name, then its aliases.

    The names come from the setting `model_names`, the model's name in config.json or in the cache
    of the Hugging Face hub, the folder's name, and its path.

    Raises:
        ValueError: the folder or a name is invalid.
    """
    folder = settings.model_dir
    assert folder is not None, "there is a model"
    if not folder.is_dir():
        raise ValueError(f"{PREFIX}MODEL_DIR: {folder} is not a folder")
    given = split_names(settings.model_names)
    for name in given:
        if len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or " " in name:
            message = (
                f"a name must have at most {MAX_NAME_CHARACTERS} characters and no white space"
            )
            raise ValueError(f"{PREFIX}MODEL_NAMES: {message}")
    found = [name for name in _find_names(folder) if not find_name_fault(name)]
    return list(dict.fromkeys([*given, *found, str(folder)]))


def _find_names(folder: Path) -> Iterator[str]:
    """Yield the names of a folder's model; some may be invalid as vocabulary names."""
    origin = _read_object(folder / "config.json").get("_name_or_path")
    if isinstance(origin, str):
        yield origin
    whole = folder.resolve()
    for parent in whole.parents:
        if parent.name.startswith(HUB_PREFIX):
            yield parent.name.removeprefix(HUB_PREFIX).replace("--", "/")
    yield whole.name


def read_model(settings: Settings) -> Model:
    """Read the model of the setting `model_dir`; slow.

    Raises:
        NoTokenizer: the folder contains no tokenizer in a supported format.
        VocabularyError: a file is invalid.
        OSError: a file cannot be read.
    """
    assert settings.model_dir is not None, "there is a model"
    return read_folder(
        settings.model_dir,
        pretokenizer=settings.model_pretokenizer,
        max_length=settings.max_model_len,
        max_template_bytes=settings.max_template_bytes,
    )


def read_folder(
    folder: Path,
    *,
    pretokenizer: str | None = None,
    max_length: int | None = None,
    max_template_bytes: int = MAX_TEMPLATE_BYTES,
) -> Model:
    """Read the model of a folder; slow.

    Args:
        folder: the folder.
        pretokenizer: the name of the pretokenizer, for files that do not contain it.
        max_length: the model's length in ids; None: read it from the files.
        max_template_bytes: the maximum size of a configuration file.

    Raises:
        NoTokenizer: the folder contains no tokenizer in a supported format.
        VocabularyError: a file is invalid.
        OSError: a file cannot be read.
    """
    paths = find_tokenizer_files(folder)
    present = [name for name in CONFIG_FILES if (folder / name).is_file()]
    config_files = {name: (folder / name).read_bytes() for name in present}
    config = TokenizerConfig.of_files(config_files, max_template_bytes)
    config = TokenizerConfig({}) if config is None else config
    files = {path.name: path.read_bytes() for path in paths}
    is_ranks = is_rank_file(files[paths[0].name])
    vocabulary, notes = read_with_notes(
        files,
        pretokenizer=pretokenizer,
        special_tokens=config.listed_tokens() if is_ranks else None,
    )
    config.refuse_other_ids(vocabulary)
    notes += config.describe_unfollowed(vocabulary)
    if "tokenizer.json" in files and (folder / ADDED_FILE).is_file():
        config.refuse_other_added_tokens((folder / ADDED_FILE).read_bytes(), vocabulary)
    if "merges.txt" in files:
        config.refuse_other_rule(has_pretokenizer=pretokenizer is not None)
    values = dict(config.values)
    if others := _read_other_templates(folder, max_template_bytes):
        values["chat_template"] = [*list_templates(values.get("chat_template")), *others]
    length = max_length or _find_length(folder, values.get(LENGTH))
    if length is not None:
        values[LENGTH] = length
    return Model(vocabulary, TokenizerConfig(values), notes)


def _read_other_templates(folder: Path, max_bytes: int) -> list[dict[str, str]]:
    """Read the templates for other uses, such as tool_use, which transformers stores as files.

    Raises:
        VocabularyError: a file is too large, or not UTF-8.
    """
    found = []
    for path in sorted((folder / OTHER_TEMPLATES).glob("*.jinja")):
        if (size := path.stat().st_size) > max_bytes:
            message = f"has {size} bytes; max_template_bytes is {max_bytes}"
            raise VocabularyError.at(path.name, message)
        found.append({"name": path.stem, "template": decode_text(path.read_bytes())})
    return found


def _find_length(folder: Path, of_tokenizer: Any) -> int | None:
    """Return the model's length in ids, the smallest in its files; None if none contains it."""
    config = _read_object(folder / "config.json")
    inner = config.get("text_config")
    values = config | (inner if isinstance(inner, dict) else {})
    lengths = [values.get(key) for key in LENGTH_KEYS]
    found = [each for each in (*lengths, of_tokenizer) if isinstance(each, int) and each > 0]
    return min(found, default=None)


def _read_object(path: Path) -> dict[str, Any]:
    """Read an optional JSON file that contains an object; return {} if it does not exist.

    Raises:
        VocabularyError: the file is not JSON.
    """
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise VocabularyError.at(path.name, f"is not JSON: {error}") from error
    return values if isinstance(values, dict) else {}
