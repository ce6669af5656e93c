"""Reads and writes the vocabularies that a command names: built-in ones, files, folders."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path

from vocabularies import builtin
from vocabularies.formats import FORMATS, read_with_notes, write_vocabulary
from vocabularies.formats.folders import find_tokenizer_files
from vocabularies.model.vocabulary import Vocabulary

NO_FILE_OPTIONS = "the options for vocabulary files do not apply to it"


class NoSuchVocabulary(ValueError):
    """No built-in vocabulary and no file has this name."""


def open_vocabulary(
    source: str,
    *,
    pretokenizer: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    decoder: str = "file",
) -> Vocabulary:
    """Read the built-in vocabulary called `source`, or the file or folder with that path.

    Any other name may be a vocabulary in the service's store, or an alias.

    Settings in the files that are ignored are listed on stderr.

    Raises:
        NoSuchVocabulary: there is no such vocabulary; the message suggests similar names.
        VocabularyError: the files are invalid (the error lists every place), or contain a field
            that is also given as an argument.
        OSError: a file cannot be read.
    """
    path = Path(source)
    if source in builtin.BUILTINS and pretokenizer is None and special_tokens is None:
        return builtin.load(source)
    if path.is_dir():
        paths = find_tokenizer_files(path)
    elif path.exists():
        paths = [path]
    elif (named := _read_named(source)) is not None:
        if pretokenizer is not None or special_tokens is not None:
            raise NoSuchVocabulary(f"{source} is a stored vocabulary; {NO_FILE_OPTIONS}")
        return dataclasses.replace(named, decoder="inverse") if decoder == "inverse" else named
    else:
        raise NoSuchVocabulary(_unknown(source))
    files = {file.name: file.read_bytes() for file in paths}
    vocabulary, notes = read_with_notes(
        files, pretokenizer=pretokenizer, special_tokens=special_tokens, decoder=decoder
    )
    for note in notes:
        print(f"warptok: {source}: {note}", file=sys.stderr)
    return vocabulary


def _read_named(name: str) -> Vocabulary | None:
    """Read a vocabulary by a name of the service; None if the service has no such name."""
    from service.core.settings import read_settings
    from service.registry.names import Aliases
    from service.registry.vocabulary_store import SUFFIX, make_reader, open_store

    settings = read_settings()
    store = open_store(settings, makes_folder=False)
    stored = store.names(SUFFIX)
    aliases = Aliases(settings.aliases, store, settings.max_vocabularies)
    aliases.read_store({*builtin.BUILTINS, *stored})
    own = aliases.names.get(name, name)
    if own in builtin.BUILTINS:
        return builtin.load(own)
    return make_reader(store, own)() if own in stored else None


def _unknown(source: str) -> str:
    if "/" in source:
        return f"{source}: no such file or folder, nor a vocabulary of the store"
    if source in builtin.BUILTINS:
        return f"{source} is built in; {NO_FILE_OPTIONS}"
    near = difflib.get_close_matches(source, builtin.BUILTINS, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`warptok vocabularies` lists them"
    return f"{source!r} is neither a built-in vocabulary nor a file; {hint}"


def output_format(format: str | None, out: Path) -> str:
    """Choose the output format by the option, or by the name of the file.

    Raises:
        ValueError: the format is unknown, or the name belongs to no format.
    """
    by_suffix = {".tiktoken": "tiktoken", ".txt": "vocab.txt", ".vocabulary": "canonical"}
    found = format or (out.name if out.name in FORMATS else by_suffix.get(out.suffix))
    if found is None:
        raise ValueError(f"give --format: the name {out.name} does not say the format")
    if found not in FORMATS:
        raise ValueError(f"unknown format {found!r}; known are {', '.join(FORMATS)}")
    return found


def write_files(vocabulary: Vocabulary, out: Path, format: str, *, force: bool) -> list[Path]:
    """Write one file to `out`, or into the folder `out`; for several files the folder is made.

    Raises:
        ValueError: a file exists already, and `force` is not set.
        VocabularyError: the format cannot express the vocabulary.
        OSError: a file cannot be written.
    """
    files = write_vocabulary(vocabulary, format)
    if len(files) > 1 or out.is_dir():
        placed = {out / name: content for name, content in files.items()}
    else:
        [content] = files.values()
        placed = {out: content}
    for path in placed:
        if path.exists() and not force:
            raise ValueError(f"{path} exists already; use --force to overwrite it")
    if len(files) > 1:
        # Only the folder that was named: a misspelt path makes none.
        out.mkdir(exist_ok=True)
    for path, content in placed.items():
        path.write_bytes(content)
    return [*placed]
