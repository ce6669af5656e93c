"""The sources that `warptok.load` accepts and refuses; the ids are the source's own."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import tiktoken
from tokenizers import Tokenizer, models

import warptok
from tests.support.data_files import records
from tests.support.inputs.model_folder import write_model_folder
from tests.support.inputs.nasty_texts import SEQUENCES, TEXTS
from tests.support.inputs.tokenizer_objects import (
    ENCODINGS,
    MODELS,
    TOKENIZER_JSON,
    WRITTEN,
    FastTokenizer,
    make_small,
    own_ids,
    read_encoding,
    read_tokenizer,
    write_tokenizer,
)
from vocabularies.builtin import BUILTINS, load
from vocabularies.formats import write_vocabulary
from vocabularies.preprocessing.pretokenizers import find_pretokenizer

OBJECTS = {
    **{f"json-{name}": partial(read_tokenizer, name) for name in TOKENIZER_JSON},
    **{f"tiktoken-{name}": partial(read_encoding, name) for name in ENCODINGS},
    **{f"builtin-{name}": partial(write_tokenizer, name) for name in WRITTEN},
    **{f"small-{name}": partial(make_small, name) for name in MODELS},
}
HELLO = [15496, 11, 995, 0]
MAX_TEXT = 20_000


def test_there_are_thirty_objects():
    assert len(OBJECTS) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTS)
def test_ids_are_those_of_the_object_itself(name):
    source = OBJECTS[name]()
    encode = own_ids(source)
    tok = warptok.load(source, device="cpu")
    texts = [*TEXTS, *SEQUENCES]
    batch = tok.encode_batch(texts, errors="keep")
    for row, text in enumerate(texts):
        assert batch[row].tolist() == encode(text), text
        assert tok.encode(text) == encode(text)
    for file in ("text/udhr_17_languages.txt", "text/code_python_stdlib.txt"):
        text = records(file)[0][:MAX_TEXT]
        assert tok.encode(text) == encode(text)


@pytest.mark.parametrize("name", [name for name in OBJECTS if name.startswith("small-")])
def test_small_objects_have_their_own_ids(name):
    source = OBJECTS[name]()
    encode, tok = own_ids(source), warptok.load(source, device="cpu")
    for text in ("hello world", "Hello  World", "", "wor\u0301ld", "ACGTNNA", "\u2581a b"):
        assert tok.encode(text) == encode(text), text


def test_a_built_in_name():
    tok = warptok.load("gpt2")
    assert tok.encode("Hello, world!") == HELLO
    assert repr(tok).startswith("<warptok.Tokenizer 'gpt2': bpe, 50257 ids, on cpu (")
    assert (tok.name, tok.device, len(tok), tok.vocab_size) == ("gpt2", "cpu", 50257, 50257)
    assert tok.digest == load("gpt2").digest


@pytest.mark.parametrize("name", sorted({*BUILTINS} - {*WRITTEN}))
def test_the_other_built_in_vocabularies_load(name):
    tok = warptok.load(name, device="cpu")
    assert tok.encode("") == tok.encode_batch([""])[0].tolist()
    assert tok.count("ACGTACGTA") == len(tok.encode("ACGTACGTA"))


@pytest.mark.slow
def test_a_file_by_its_path(tmp_path: Path):
    for kind in ("tokenizer.json", "tiktoken", "vocab.json"):
        files = write_vocabulary(load("gpt2"), kind)
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
    assert warptok.load(tmp_path / "tokenizer.json").encode("Hello, world!") == HELLO
    ranks = str(tmp_path / "vocabulary.tiktoken")
    tok = warptok.load(ranks, pretokenizer="gpt2", special_tokens={"<|endoftext|>": 50256})
    assert tok.digest == load("gpt2").digest


def test_a_folder_of_a_model_with_its_length_and_its_roles(tmp_path: Path):
    folder = write_model_folder(tmp_path / "base")
    tok = warptok.load(str(folder))
    assert tok.encode("Hello, world!") == HELLO
    assert (tok.name, tok.model_max_length) == (str(folder), 1024)
    assert (tok.bos_token_id, tok.eos_token_id, tok.pad_token_id) == (50256, 50256, None)


def test_a_fast_tokenizer_of_transformers_with_what_python_says_beside_it():
    backend = write_tokenizer("dnabert2")
    backend.enable_truncation(4)  # As the last call left it.
    source = FastTokenizer(
        backend, "org/dna", 512, padding_side="left", truncation_side="left", pad_token_id=0
    )
    tok = warptok.load(source)
    assert tok.encode("ACGTACGT") == warptok.load("dnabert2").encode("ACGTACGT")
    assert (tok.name, tok.model_max_length, tok.pad_token_id) == ("org/dna", 512, 0)
    assert (tok.padding_side, tok.truncation_side) == ("left", "left")
    assert warptok.load(FastTokenizer(backend)).model_max_length is None


def test_an_object_that_differs_from_its_own_file_is_refused():
    class Late(FastTokenizer):
        """An object whose tokenizer.json says of its added tokens what it does not do."""

        truncation = padding = None

        def __getattr__(self, name):
            return getattr(self.backend_tokenizer, name)

        def to_str(self):
            other = write_tokenizer("dnabert2")
            other.add_special_tokens(["<s>"])
            return other.to_str()

        def get_added_tokens_decoder(self):
            return Tokenizer.from_str(self.to_str()).get_added_tokens_decoder()

    with pytest.raises(warptok.InvalidRequest, match="other ids for 'a <s> b' than its own"):
        warptok.load(FastTokenizer(Late(write_tokenizer("dnabert2"))))


def test_what_is_not_followed_is_a_warning():
    backend = write_tokenizer("gpt2")
    backend.enable_truncation(4)
    with pytest.warns(UserWarning, match="truncation of the file is not followed") as warned:
        warptok.load(backend)
    assert warned[0].filename == __file__


def test_an_encoding_of_tiktoken_with_special_tokens_of_its_own():
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
    pattern = find_pretokenizer("cl100k").tiktoken_pattern
    assert pattern is not None
    source = tiktoken.Encoding(
        "mine", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|x|>": 300}
    )
    tok = warptok.load(source)
    assert tok.encode("abc<|x|>") == source.encode("abc<|x|>", allowed_special="all")
    assert (tok.name, len(tok)) == ("mine", 301)


def test_an_unknown_pattern_of_tiktoken_is_refused_with_a_way_out():
    ranks = {bytes([byte]): byte for byte in range(256)}
    source = tiktoken.Encoding("odd", pat_str="x|y+", mergeable_ranks=ranks, special_tokens={})
    with pytest.raises(warptok.InvalidRequest, match=r"save a tokenizer\.json") as refused:
        warptok.load(source)
    assert refused.value.code == "vocabulary_invalid"
    assert refused.value.findings[0].where == "pat_str"


def test_names_paths_and_objects_that_there_are_not(tmp_path: Path):
    with pytest.raises(warptok.UnknownVocabulary, match="did you mean gpt2 or gpn"):
        warptok.load("gpt")
    with pytest.raises(warptok.UnknownVocabulary, match="nor a file; give a built-in name"):
        warptok.load("no/such/folder")
    with pytest.raises(warptok.InvalidRequest, match=r"has none of tokenizer\.json"):
        warptok.load(tmp_path)
    with pytest.raises(TypeError, match="a int is not a tokenizer; give a built-in name"):
        warptok.load(5)

    class EsmTokenizer:
        def convert_tokens_to_ids(self, tokens):
            return []

    with pytest.raises(TypeError, match=r"is a tokenizer in Python.*nt_v2"):
        warptok.load(EsmTokenizer())


def test_a_wrong_file_names_every_place(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}))
    with pytest.raises(warptok.InvalidRequest) as refused:
        warptok.load(path)
    assert refused.value.code == "vocabulary_invalid"
    assert "model.vocab" in refused.value.findings[0].where


def test_arguments_that_do_not_belong_to_the_source(tmp_path: Path):
    with pytest.raises(warptok.InvalidRequest, match="gpt2 is built in"):
        warptok.load("gpt2", pretokenizer="gpt2")
    with pytest.raises(warptok.InvalidRequest, match="this object contains them"):
        warptok.load(Tokenizer(models.BPE()), special_tokens={})
    with pytest.raises(warptok.InvalidRequest, match="not allowed for a folder"):
        warptok.load(tmp_path, special_tokens={})
    with pytest.raises(warptok.InvalidRequest, match='it must be "auto", "cpu", "cuda"'):
        warptok.load("gpt2", device="gpu")


def test_another_digest_is_refused():
    digest = warptok.load("gpt2").digest
    assert warptok.load("gpt2", if_digest=digest.removeprefix("sha256:")).digest == digest
    with pytest.raises(warptok.DigestDiffers, match=f"the digest of gpt2 is {digest}"):
        warptok.load("gpt2", if_digest="sha256:0")


@pytest.mark.parametrize(
    "model",
    [
        models.WordLevel({"A": 0, "C": 1}, unk_token="[UNK]"),
        models.WordPiece({"A": 0, "##C": 1}, unk_token="[UNK]"),
        models.Unigram([("A", -1.0), ("C", -2.0)], None),
    ],
    ids=["wordlevel", "wordpiece", "unigram"],
)
def test_an_object_without_an_unknown_token_may_have_added_ones(model):
    own = Tokenizer(model)
    own.add_special_tokens(["[CLS]"])
    tok = warptok.load(own, device="cpu")
    assert tok.encode("A[CLS]A") == own.encode("A[CLS]A").ids
