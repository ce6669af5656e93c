"""The vocabularies that are timed, and the files in which the libraries find them.

tiktoken gets the official rank files, of which it checks the digest itself; Hugging Face tokenizers
the published tokenizer.json, or where there is none the one that we write.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.witnesses import Witness
from vocabularies import builtin
from vocabularies.formats import read_vocabulary, tokenizer_json, write_vocabulary
from vocabularies.vocabulary import Vocabulary

__all__ = ["NAMES", "TimedVocabulary", "read_timed", "without_normalizers"]

TIKTOKEN = {"gpt2": "r50k_base", "cl100k_base": "cl100k_base", "o200k_base": "o200k_base"}
"""Built-in vocabularies and what tiktoken calls them; its gpt2 is r50k_base from other files."""
FILES = {
    "llama3": "vocab/llama3/tokenizer.json.xz",
    "qwen": "vocab/qwen/qwen3_tokenizer.json.xz",
    "deepseek_v3": "vocab/deepseek_v3/tokenizer.json.xz",
}
"""Those of the data folder."""
NAMES = (*TIKTOKEN, *FILES)
RANKS_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


@dataclass(frozen=True, slots=True, eq=False)
class TimedVocabulary:
    """A vocabulary under the name in the results."""

    name: str
    vocabulary: Vocabulary
    witness: Witness

    @property
    def json(self) -> str:
        """Its tokenizer.json."""
        return Path(self.witness.tokenizer_json).read_text()


def read_timed(name: str, data: Path, scratch: Path) -> TimedVocabulary:
    """A vocabulary by its name, with the libraries' files in the scratch folder.

    Raises:
        FileNotFoundError: it is one of the data folder's, and not there.
    """
    if name in TIKTOKEN:
        vocabulary = builtin.load(name)
        write_rank_file(vocabulary, TIKTOKEN[name], scratch)
        document = tokenizer_json(vocabulary)
    else:
        document = lzma.decompress((data / FILES[name]).read_bytes()).decode()
        vocabulary = read_vocabulary({"tokenizer.json": document.encode()})
    return _timed(name, vocabulary, document, scratch)


def without_normalizers(timed: TimedVocabulary, scratch: Path) -> TimedVocabulary:
    """The same without what rewrites the text first, as `<name>_raw`."""
    document = json.dumps(json.loads(timed.json) | {"normalizer": None})
    vocabulary = replace(timed.vocabulary, normalizers=())
    return _timed(f"{timed.name}_raw", vocabulary, document, scratch)


def write_rank_file(vocabulary: Vocabulary, encoding: str, folder: Path) -> None:
    """Put a rank file where tiktoken looks before it downloads one (TIKTOKEN_CACHE_DIR)."""
    content = write_vocabulary(vocabulary, "tiktoken")["vocabulary.tiktoken"]
    name = hashlib.sha1(RANKS_URL.format(encoding).encode()).hexdigest()
    (folder / name).write_bytes(content)


def _timed(name: str, vocabulary: Vocabulary, document: str, scratch: Path) -> TimedVocabulary:
    path = scratch / f"{name}.json"
    path.write_text(document)
    witness = Witness(vocabulary.digest, TIKTOKEN.get(name, ""), str(path))
    return TimedVocabulary(name, vocabulary, witness)
