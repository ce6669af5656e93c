"""The built-in vocabularies are the published ones: digests, lists, ids."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import fastokens
import pytest
import tiktoken
from tokenizers import Tokenizer

from tests.support.data_files import DATA, data_bytes, data_json, expected, ids_digest, records
from tests.support.inputs.nasty_texts import RUNS, SEQUENCES, TEXTS
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import BUILTINS, build, catalog, describe, load
from vocabularies.builtin.upstream_files import UPSTREAM
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.reference.tokenizer import encode

TIKTOKEN = ("gpt2", "cl100k_base", "o200k_base")
DNA_BPE = ("dnabert2", "gena_lm_t2t_32k", "gpn")
LISTS = {
    "nt_v1": "dna_vocab/nt/nt_v1_vocab.txt",
    "nt_v2": "dna_vocab/nt/nt_v2_vocab.txt",
    **{f"dnabert1_{k}mer": f"dna_vocab/dnabert1/vocab_{k}mer.txt" for k in (3, 4, 5, 6)},
    "hyenadna": "dna_vocab/char/hyenadna_caduceus_vocab.json",
    "mtdna6": "dna_vocab/mtdna6/vocab.json",
}
SOURCES = (Path(catalog.__file__).parent / "SOURCES.md").read_text()
CASES = [*TEXTS, *SEQUENCES, *RUNS]


@functools.cache
def library(name: str) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json(load(name)))


def test_the_list_is_the_promised_one():
    promised = (
        "gpt2 cl100k_base o200k_base dnabert2 gena_lm_t2t_32k nt_v1 nt_v2 ntv3 dnabert1_3mer "
        "dnabert1_4mer dnabert1_5mer dnabert1_6mer gpn hyenadna caduceus evo_bytes mtdna6"
    )
    assert " ".join(BUILTINS) == promised


@pytest.mark.parametrize("name", BUILTINS)
def test_sources_names_the_digest_of_every_vocabulary(name):
    assert re.search(rf"^\| {name} \|.*\| {load(name).digest} \|$", SOURCES, re.MULTILINE)
    info = describe(name)
    assert info.name == name and all((info.source, info.licence, info.family))
    assert load(name) is load(name)


def test_sources_names_the_digest_of_every_upstream_file():
    for name, file in UPSTREAM.items():
        assert re.search(rf"^\| {name} \|.*\| {file.sha256} \| sha256:", SOURCES, re.MULTILINE)


def test_a_damaged_file_is_a_wrong_vocabulary(tmp_path, monkeypatch):
    stored = bytearray((Path(catalog.__file__).parent / "gpn.vocabulary.xz").read_bytes())
    stored[150] ^= 1
    (tmp_path / "gpn.vocabulary.xz").write_bytes(stored)
    monkeypatch.setattr(catalog.resources, "files", lambda _: tmp_path)
    for name in ("gpn", "gpt2"):  # The other one is not there.
        with pytest.raises(VocabularyError, match=f"{name}.vocabulary.xz: cannot be read"):
            load.__wrapped__(name)


def test_the_error_of_an_unknown_name_lists_similar_ones():
    for function in (load, describe):
        with pytest.raises(KeyError, match="similar names are cl100k_base"):
            function("cl100k")


@pytest.mark.slow
def test_the_stored_files_are_rebuilt_from_the_upstream_files():
    if not DATA.is_dir():
        pytest.skip("no data folder (set WARPTOK_DATA)")
    found = build.find_upstream(DATA)
    assert found.keys() == UPSTREAM.keys()
    for name, path in found.items():
        assert build.rebuild(name, path.read_bytes()).digest == load(name).digest, name


def test_the_command_writes_what_is_stored(tmp_path, monkeypatch, capsys):
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    (upstream / "any name").write_bytes(data_bytes("dna_vocab/gpn/tokenizer.json"))
    monkeypatch.setattr(build, "__file__", str(tmp_path / "build.py"))
    assert build.main([str(upstream)]) == 1
    output = capsys.readouterr()
    assert load("gpn").digest in output.out
    assert f"gpt2: no file with sha256 {UPSTREAM['gpt2'].sha256}" in output.err
    stored = Path(catalog.__file__).parent / "gpn.vocabulary.xz"
    assert (tmp_path / "gpn.vocabulary.xz").read_bytes() == stored.read_bytes()
    assert build.main([]) == 2


@pytest.mark.parametrize("name", LISTS)
def test_generated_vocabularies_are_the_published_lists(name):
    assert read_vocabulary({"list": data_bytes(LISTS[name])}) == load(name)


def test_caduceus_is_hyenadna_in_upper_case():
    hyenadna, caduceus = load("hyenadna"), load("caduceus")
    assert caduceus.tokens == hyenadna.tokens
    assert [encode(v, "acgtN").ids for v in (hyenadna, caduceus)] == [
        [6, 6, 6, 6, 11, 1],
        [7, 8, 9, 10, 11, 1],
    ]
    assert hyenadna.padding_side == caduceus.padding_side == "left"
    for vocabulary in (hyenadna, caduceus):  # Their class does not look for it in texts.
        assert encode(vocabulary, "AC[RESERVED]G").ids == [7, 8, *[6] * 10, 9, 1]
        assert encode(vocabulary, "AC[MASK]G").ids == [7, 8, 3, 9, 1]
    assert load("gpt2").padding_side == "right"


def test_evo_bytes_are_all_bytes_and_256_ids_without_meaning():
    evo = load("evo_bytes")
    assert len(evo) == 512
    assert evo.tokens == (*(bytes([byte]) for byte in range(256)), *[None] * 256)
    assert (evo.roles, evo.special_tokens) == ({"eos": 0, "pad": 1}, ())
    assert encode(evo, "ANé\0\1").ids == [65, 78, 0xC3, 0xA9, 0, 1]


def test_ntv3_is_the_published_list():
    contents = "<unk> <pad> <mask> <cls> <eos> <bos> A T C G N".split()
    assert load("ntv3").tokens == tuple(content.encode() for content in contents)
    assert encode(load("ntv3"), "ATCGNx").ids == [6, 7, 8, 9, 10, 0]


@pytest.mark.parametrize("name", BUILTINS)
def test_every_vocabulary_comes_back_from_the_canonical_form(name):
    assert read_vocabulary(write_vocabulary(load(name), "canonical")) == load(name)


@pytest.mark.parametrize("name", TIKTOKEN)
@pytest.mark.slow
def test_ids_are_those_of_tiktoken(name):
    facts = data_json("vocab/llm_encodings.json")[name]
    ranks = {
        token: token_id
        for token_id, token in enumerate(load(name).tokens)
        if token is not None and token.decode(errors="replace") not in facts["special_tokens"]
    }
    upstream = tiktoken.Encoding(
        name,
        pat_str=facts["pat_str"],
        mergeable_ranks=ranks,
        special_tokens=facts["special_tokens"],
    )
    text_ids = [upstream.encode(text, allowed_special="all") for text in CASES]
    assert [library(name).encode(text).ids for text in CASES] == text_ids
    fast = fastokens.Tokenizer.from_json_str(tokenizer_json(load(name)))
    assert [list(fast.encode(text).ids) for text in CASES] == text_ids


@pytest.mark.parametrize("name", DNA_BPE)
def test_ids_are_those_of_the_published_tokenizer_json(name):
    published = Tokenizer.from_str(data_bytes(f"dna_vocab/{name}/tokenizer.json").decode())
    for text in CASES:
        assert library(name).encode(text).ids == published.encode(text).ids, text


@pytest.mark.parametrize("name", TIKTOKEN)
def test_ids_of_real_texts_have_the_published_hash(name):
    for file in ("text/blns.txt", "text/grapheme_break_test.txt", "dna/mtdna_rCRS_NC_012920.1.fa"):
        # A FASTA file is one text for the text encodings.
        ids = library(name).encode(data_bytes(file).decode()).ids
        facts = expected()[name][file]
        assert (len(ids), ids_digest(ids)) == (facts["n_tokens"], facts["sha256"]), file


@pytest.mark.parametrize("name", DNA_BPE)
def test_ids_of_real_sequences_have_the_published_hash(name):
    for file in ("dna/lambda_NC_001416.fa", "dna/human_hg38_softmasked_chr13_chr4.fa"):
        ids = [i for text in records(file) for i in library(name).encode(text).ids]
        facts = expected()[name][file]
        assert (len(ids), ids_digest(ids)) == (facts["n_tokens"], facts["sha256"]), file


@pytest.mark.parametrize(
    "name",
    [
        *("nt_v1", "nt_v2", "hyenadna", "caduceus", "evo_bytes", "dnabert1_3mer", "dnabert1_6mer"),
        *("mtdna6_linear", "mtdna6_circular"),
    ],
)
def test_ids_of_a_mitochondrial_genome_have_the_published_hash(name):
    file = "dna/mtdna_rCRS_NC_012920.1.fa"
    options = EncodeOptions(circular=name.endswith("circular") or None)
    vocabulary = load(name.split("_")[0] if name.startswith("mtdna6") else name)
    texts = records(file)
    facts = expected()[name][file]
    ids = [i for text in texts for i in encode(vocabulary, text, options).ids]
    assert (len(ids), ids_digest(ids)) == (facts["n_tokens"], facts["sha256"])
