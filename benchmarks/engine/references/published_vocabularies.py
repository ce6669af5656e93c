"""The vocabularies that are timed, and the files from which other libraries load them.

tiktoken loads the published rank file, with pattern and special tokens of the data folder; other
libraries load the tokenizer.json that we write.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.engine.references.reference_libraries import ReferenceFiles
from vocabularies import builtin
from vocabularies.formats import read_vocabulary
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.vocabulary import Vocabulary

ENCODINGS = "vocab/llm_encodings.json"
"""Of the data folder: {name: {ranks_file, pat_str, special_tokens}}."""
RAW = "_raw"
NAMES = ("gpt2", "cl100k_base", "o200k_base", "llama3", "qwen_raw")
"""`qwen_raw` is Qwen's without the normalization of the text in front of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """A vocabulary under the name in the results."""

    name: str
    vocabulary: Vocabulary
    files: ReferenceFiles

    @property
    def json(self) -> str:
        """Read its tokenizer.json."""
        return self.files.tokenizer_json.read_text()


def read_published(name: str, data: Path, scratch: Path) -> Published:
    """Read a vocabulary by its name, and write its tokenizer.json to the scratch folder.

    Raises:
        FileNotFoundError: a file of the data folder is not there.
    """
    described = json.loads((data / ENCODINGS).read_text())[name.removesuffix(RAW)]
    ranks = data / described["ranks_file"]
    if name in builtin.BUILTINS:
        vocabulary = builtin.load(name)
    else:
        read = read_vocabulary({"vocabulary.tiktoken": ranks.read_bytes()})
        vocabulary = replace(read, normalizers=())
    path = scratch / f"{name}.json"
    path.write_text(tokenizer_json(vocabulary))
    special = tuple((token.content, token.id) for token in vocabulary.special_tokens)
    files = ReferenceFiles(name, ranks, described["pat_str"], special, path)
    return Published(name, vocabulary, files)
