"""Tokenizer objects of other libraries, for the tests of `warptok.load`, with their own ids."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tiktoken
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from tests.support.data_files import data_bytes, data_json
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

TOKENIZER_JSON = {
    "gpt2": "vocab/gpt2/tokenizer.json.xz",
    "llama3": "vocab/llama3/tokenizer.json.xz",
    "qwen3": "vocab/qwen/qwen3_tokenizer.json.xz",
    "deepseek_v3": "vocab/deepseek_v3/tokenizer.json.xz",
    "dnabert2": "dna_vocab/dnabert2/tokenizer.json",
    "gena_lm_t2t_32k": "dna_vocab/gena_lm_t2t_32k/tokenizer.json",
    "gpn": "dna_vocab/gpn/tokenizer.json",
}
ENCODINGS = (
    "gpt2",
    "r50k_base",
    "p50k_base",
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
    "llama3",
    "qwen",
    "tekken",
)
"""Names in llm_encodings.json; Qwen's is without its normalization, which tiktoken has not."""


@dataclass(frozen=True)
class FastTokenizer:
    """A fast tokenizer like those of transformers: a backend with settings in Python."""

    backend_tokenizer: Tokenizer
    name_or_path: str = "org/model"
    model_max_length: int = 10**30
    padding_side: str = "right"
    truncation_side: str = "right"
    pad_token_id: int | None = None
    eos_token_id: int | None = None


def read_tokenizer(name: str) -> Tokenizer:
    """Read a published tokenizer.json of the data folder; skip the test without it."""
    return Tokenizer.from_str(data_bytes(TOKENIZER_JSON[name]).decode())


def read_encoding(name: str) -> tiktoken.Encoding:
    """Make a published encoding of tiktoken; skip the test without its rank file."""
    parts = data_json("vocab/llm_encodings.json")[name]
    lines = (line.split() for line in data_bytes(parts["ranks_file"]).splitlines() if line)
    offset = parts["id_offset"]
    return tiktoken.Encoding(
        name,
        pat_str=parts["pat_str"],
        mergeable_ranks={base64.b64decode(word): int(rank) + offset for word, rank in lines},
        special_tokens=parts["special_tokens"],
    )


def write_tokenizer(name: str) -> Tokenizer:
    """Make the `tokenizers.Tokenizer` of a built-in vocabulary."""
    (document,) = write_vocabulary(load(name), "tokenizer.json").values()
    return Tokenizer.from_str(document.decode())


WRITTEN = ("gpt2", "cl100k_base", "o200k_base", "dnabert2", "gena_lm_t2t_32k", "gpn")
"""The built-in vocabularies that a tokenizer.json can hold."""
LETTERS = {
    letter: number for number, letter in enumerate("[UNK] a b c d e h l o r w \u2581".split())
}
WORDS = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "hello": 3, "world": 4, "wor": 5, "##ld": 6}


def make_small(name: str) -> Tokenizer:
    """Make a small tokenizer of a kind that no data file has."""
    tokenizer = Tokenizer(MODELS[name]())
    if name in NORMALIZERS:
        tokenizer.normalizer = NORMALIZERS[name]()
    if name in SPLITTERS:
        tokenizer.pre_tokenizer = SPLITTERS[name]()
    if name == "wordpiece":
        tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
        pairs = [("[CLS]", 1), ("[SEP]", 2)]
        tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=pairs)
    return tokenizer


MODELS: dict[str, Callable[[], Any]] = {
    "wordpiece": lambda: models.WordPiece(WORDS, unk_token="[UNK]"),
    "wordlevel": lambda: models.WordLevel(WORDS, unk_token="[UNK]"),
    "unigram": lambda: models.Unigram(
        [("[UNK]", 0.0), ("hello", -1.0), ("o", -2.0), ("l", -3.0)], 0
    ),
    "metaspace": lambda: models.BPE(LETTERS, [], unk_token="[UNK]"),
    "lowercase": lambda: models.BPE(LETTERS, [], unk_token="[UNK]", fuse_unk=True),
    "nfc": lambda: models.BPE(LETTERS, [], unk_token="[UNK]"),
    "prepend": lambda: models.BPE(LETTERS, [], unk_token="[UNK]"),
    "characters": lambda: models.BPE({"A": 0, "C": 1, "G": 2, "T": 3, "N": 4}, [], unk_token="N"),
}
NORMALIZERS: dict[str, Callable[[], Any]] = {
    "wordpiece": normalizers.BertNormalizer,
    "lowercase": normalizers.Lowercase,
    "nfc": normalizers.NFC,
    "prepend": lambda: normalizers.Prepend("\u2581"),
}
SPLITTERS: dict[str, Callable[[], Any]] = {
    "wordpiece": pre_tokenizers.BertPreTokenizer,
    "wordlevel": pre_tokenizers.Whitespace,
    "metaspace": pre_tokenizers.Metaspace,
    "lowercase": pre_tokenizers.WhitespaceSplit,
}


Encode = Callable[[str], list[int]]


def own_ids(source: Any) -> Encode:
    """Return the function by which an object encodes a text, special tokens matched."""
    if isinstance(source, tiktoken.Encoding):
        return lambda text: source.encode(text, allowed_special="all")
    backend = getattr(source, "backend_tokenizer", source)
    return lambda text: list(backend.encode(text).ids)
