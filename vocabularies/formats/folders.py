"""Finds the vocabulary files in a model's folder."""

from __future__ import annotations

from pathlib import Path

from vocabularies.formats.sentencepiece.class_config import CONFIG_FILES
from vocabularies.formats.tiktoken.ranks import is_rank_file

# Groups of files; the first group that is complete is read.
GROUPS = (
    ("tokenizer.json",),
    ("tekken.json",),
    ("vocab_config.json", "vocab.json"),
    ("vocab_config.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.json",),
    ("vocab.txt",),
)


class NoTokenizer(ValueError):
    """A folder contains no tokenizer in a known format; the message lists its files."""


def find_tokenizer_files(folder: Path) -> list[Path]:
    """Find the vocabulary files in a folder.

    Raises:
        NoTokenizer: no file has a supported format.
    """
    for names in GROUPS:
        paths = [folder / name for name in names]
        if all(path.is_file() for path in paths):
            return paths
    models = sorted(folder.glob("*.model"))  # Rank files, or models of SentencePiece.
    ranks = sorted(folder.glob("*.tiktoken"))
    ranks += [path for path in models if is_rank_file(path.read_bytes())]
    if len(ranks) == 1:
        return ranks
    if len(models) == 1 and not ranks:
        beside = [folder / name for name in CONFIG_FILES]
        return [*models, *(path for path in beside if path.is_file())]
    expected = ", ".join(" + ".join(names) for names in GROUPS)
    raise NoTokenizer(
        f"{folder} has none of {expected}, and not exactly one rank file (.tiktoken) or "
        "SentencePiece model (.model)"
    )
