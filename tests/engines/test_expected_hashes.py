"""Every engine on every real file: the hashes that tiktoken, tokenizers and the projects gave."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest

from gpu.text.nfc_check import is_in_nfc
from tests.support.data_files import data_bytes, data_json, expected, ids_digest, records
from tests.support.each_engine import MARKS, engine_of
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import BUILTINS, load
from vocabularies.formats import read_vocabulary
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer, nfc
from vocabularies.preprocessing.pretokenizers import recognize_tiktoken_pattern

ENGINES = [pytest.param(name, marks=MARKS[name]) for name in ("cpu", "cuda")]
LLM = (
    "gpt2",
    "r50k_base",
    "p50k_base",
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
    "llama3",
    "qwen",
    "qwen_raw",
    "qwen3_hf",
    "tekken",
    "deepseek_v3",
)
DNA = (
    "dnabert2",
    "gena_lm_t2t_32k",
    "gpn",
    "nt_v1",
    "nt_v2",
    "hyenadna",
    "caduceus",
    "evo_bytes",
    "dnabert1_3mer",
    "dnabert1_6mer",
    "mtdna6_linear",
    "mtdna6_circular",
)
BUILT_IN_TEXT = ("gpt2", "cl100k_base", "o200k_base")
LETTER_BPE = ("dnabert2", "gena_lm_t2t_32k")
ORDINARY = EncodeOptions(add_special_tokens=False, special="plain")
NORMALIZATION = "text/normalization_strings_half_a.txt"


def slow_if(is_slow: bool) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.slow,) if is_slow else ()


def vocabulary_of(name: str) -> Vocabulary:
    """Load a built-in vocabulary, or read one from its published file."""
    name = name.removesuffix("_linear").removesuffix("_circular")
    if name in BUILTINS:
        return load(name)
    encodings = data_json("vocab/llm_encodings.json")
    described = encodings["qwen" if name == "qwen_raw" else name]
    if "tokenizer_json" in described:
        return read_vocabulary({"tokenizer.json": data_bytes(described["tokenizer_json"])})
    vocabulary = read_vocabulary(
        {f"{name}.tiktoken": data_bytes(described["ranks_file"])},
        pretokenizer=recognize_tiktoken_pattern(described["pat_str"]),
        special_tokens=described["special_tokens"],
        id_offset=described["id_offset"],
    )
    normalizers = (Normalizer("nfc"),) if described["normalizer"] == "NFC" else ()
    return replace(vocabulary, normalizers=() if name == "qwen_raw" else normalizers)


def test_every_vocabulary_of_the_data_folder_is_tested():
    assert expected().keys() <= {*LLM, *DNA}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=slow_if(name not in BUILT_IN_TEXT)) for name in LLM]
)
def test_texts_have_the_expected_ids(engine, name):
    files = expected().get(name, {})
    if not files:
        pytest.skip("no expected.json in the data folder (set WARPTOK_DATA)")
    vocabulary = vocabulary_of(name)
    residency = engine_of(engine).load(vocabulary)
    own = "cpu" if engine == "cpu" else "gpu"
    assert residency.engine == own, residency
    rows = {}
    texts = {file: data_bytes(file).decode() for file in files}
    composed = [file for file in files if vocabulary.normalizers and not is_in_nfc(texts[file])]
    others = [file for file in files if file not in composed]
    for some, expected_engine in ((others, own), (composed, "cpu")):
        batch = Batch([texts[file] for file in some], options=ORDINARY)
        encoded = engine_of(engine).encode(vocabulary, batch)
        assert encoded.engine == expected_engine or not some
        rows |= {file: encoded.row(row) for row, file in enumerate(some)}
    engine_of(engine).unload(vocabulary.digest)
    known = dict(files)
    if name == "qwen":
        # Made with Python's tables of NFC; our NFC has the older ones of tokenizers.
        known[NORMALIZATION] = expected()["qwen3_hf"][NORMALIZATION]
        assert known[NORMALIZATION] != files[NORMALIZATION]
    for file in files:
        assert len(rows[file]) == known[file]["n_tokens"], file
        assert ids_digest(rows[file]) == known[file]["sha256"], file


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=slow_if(name in LETTER_BPE)) for name in DNA]
)
def test_sequences_have_the_expected_ids(name):
    files = expected().get(name, {})
    if not files:
        pytest.skip("no expected.json in the data folder (set WARPTOK_DATA)")
    options = EncodeOptions(circular=True if name == "mtdna6_circular" else None)
    vocabulary = vocabulary_of(name)
    for file, known in files.items():
        encoded = engine_of("cpu").encode(vocabulary, Batch(records(file), options=options))
        assert encoded.errors == {}
        assert len(encoded.ids) == known["n_tokens"], file
        assert ids_digest(encoded.ids) == known["sha256"], file


@pytest.mark.slow
def test_no_other_file_tells_pythons_nfc_from_ours():
    """`qwen` therefore has the hashes of Python's NFC on every file but one."""
    for file in expected().get("qwen", {}):
        text = data_bytes(file).decode()
        same = nfc(text)[0] == unicodedata.normalize("NFC", text)
        assert same == (file != NORMALIZATION), file
