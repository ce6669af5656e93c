"""Compares real vocabularies on odd texts with tiktoken, tokenizers and the reference."""

from __future__ import annotations

import base64
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import tiktoken
from tokenizers import Tokenizer
from tokenizers.normalizers import NFC

from service.engines.cpu.engine import CpuEngine
from tests.fuzz.texts import nasty_bytes, nasty_text, strings
from tests.support.data_files import data_bytes, data_json
from vocabularies.batch.batch import Batch, EncodeOptions, RowError, RowRefused
from vocabularies.builtin import BUILTINS, load
from vocabularies.formats import read_vocabulary
from vocabularies.model.types import Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

ORDINARY = EncodeOptions(add_special_tokens=False, special="plain")
PLAIN = EncodeOptions(add_special_tokens=False)
TOKENIZER_JSON = {
    "gpt2.json": "vocab/gpt2/tokenizer.json.xz",
    "llama3.json": "vocab/llama3/tokenizer.json.xz",
    "qwen3.json": "vocab/qwen/qwen3_tokenizer.json.xz",
    "deepseek_v3.json": "vocab/deepseek_v3/tokenizer.json.xz",
    "dnabert2.json": "dna_vocab/dnabert2/tokenizer.json",
    "gena.json": "dna_vocab/gena_lm_t2t_32k/tokenizer.json",
    "gpn.json": "dna_vocab/gpn/tokenizer.json",
}
TIKTOKEN = ("gpt2", "p50k_base", "cl100k_base", "o200k_base", "llama3", "qwen")
ROWS = 24
Found = Callable[[str], None]
Ids = list[int] | RowError


@functools.cache
def engine() -> CpuEngine:
    return CpuEngine()


def right(vocabulary: Vocabulary, text: str, options: EncodeOptions) -> Ids:
    """Return the reference's ids."""
    try:
        return tokenizer.encode(vocabulary, text, options).ids
    except RowRefused as refused:
        return refused.error


def rows_of(vocabulary: Vocabulary, batch: Batch) -> list[Ids]:
    """Return the engine's ids."""
    answer = engine().encode(vocabulary, batch)
    return [answer.errors.get(row) or answer.row(row).tolist() for row in range(len(batch))]


LibraryIds = Callable[[str], list[int]]


def real_vocabularies() -> Iterator[tuple[str, Vocabulary, EncodeOptions, LibraryIds]]:
    """Yield every real vocabulary with a function that returns a library's ids of a text."""
    described = data_json("vocab/llm_encodings.json")
    for name in TIKTOKEN:
        if name in described:
            vocabulary = load(name) if name in BUILTINS else of_ranks(name, described[name])
            yield f"{name} (tiktoken)", vocabulary, ORDINARY, tiktoken_of(name, described[name])
    for name, path in TOKENIZER_JSON.items():
        content = data_bytes(path)
        library = Tokenizer.from_str(content.decode())
        vocabulary = read_vocabulary({"tokenizer.json": content})

        def ids(text: str, library: Tokenizer = library) -> list[int]:
            found: list[int] = library.encode(text, add_special_tokens=False).ids
            return found

        yield f"{name} (tokenizers)", vocabulary, PLAIN, ids


def of_ranks(name: str, described: dict[str, Any]) -> Vocabulary:
    return read_vocabulary({f"{name}.tiktoken": data_bytes(described["ranks_file"])})


def tiktoken_of(name: str, described: dict[str, Any]) -> LibraryIds:
    """Return a function that gives tiktoken's ids, after the normalizer of tokenizers if any."""
    lines = data_bytes(described["ranks_file"]).splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    made = tiktoken.Encoding(
        name, pat_str=described["pat_str"], mergeable_ranks=ranks, special_tokens={}
    )
    offset = described.get("id_offset") or 0
    if described.get("normalizer"):
        normal = (
            NFC()
        )  # Of the Unicode version that tokenizers has; see vocabularies.preprocessing.normalizers.
        return lambda text: made.encode_ordinary(normal.normalize_str(text))
    return lambda text: [offset + token_id for token_id in made.encode_ordinary(text)]


def real_hunt(until: float, rng: Random, found: Found) -> tuple[int, int]:
    """Compare real vocabularies until a time; return the number of texts and ids compared."""
    known = [*real_vocabularies()]
    known += [(name, load(name), EncodeOptions(), None) for name in BUILTINS]
    num_texts = num_ids = 0
    while time.monotonic() < until:
        for name, vocabulary, options, library_ids in known:
            some = strings(vocabulary, rng)
            texts = [nasty_text(rng, some) for _ in range(ROWS)]
            answers = rows_of(vocabulary, Batch(texts, options=options))
            for text, ids in zip(texts, answers, strict=True):
                num_texts, num_ids = (
                    num_texts + 1,
                    num_ids + len(ids if isinstance(ids, list) else ()),
                )
                if library_ids is not None and ids != library_ids(text):
                    found(f"{name}: {text!r}: {ids}, not {library_ids(text)}")
                if len(text) < 200 and not isinstance(vocabulary.model, Upstream):
                    expected = right(vocabulary, text, options)
                    if ids != expected:
                        found(f"{name}: {text!r}: {ids}, the reference has {expected}")
            if not isinstance(vocabulary.model, Upstream):
                check_bytes(name, vocabulary, rng, texts, found)
    return num_texts, num_ids


def check_bytes(
    name: str, vocabulary: Vocabulary, rng: Random, texts: Sequence[str], found: Found
) -> None:
    """Check that rows which are no UTF-8 are refused at the byte that Python names."""
    rows = [nasty_bytes(rng, text[:40]) for text in texts]
    answers = rows_of(vocabulary, Batch.from_bytes(rows, ORDINARY))
    for row, ids in zip(rows, answers, strict=True):
        try:
            expected = right(vocabulary, row.decode(), ORDINARY)
        except UnicodeDecodeError as error:
            if getattr(vocabulary.model, "unit", "") == "byte":
                continue  # Takes any bytes.
            message = f"the text is not UTF-8: {error.reason}"
            expected = RowError("not_utf8", message, f"byte {error.start}")
        if ids != expected:
            found(f"{name}: {row!r}: {ids}, not {expected}")
