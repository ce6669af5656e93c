"""A model's folder as it lies on disk: what is read of it, and what stops the start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.core.settings import Settings
from service.registry.model_folder import find_model_names, read_model, use_model
from service.registry.registry import Registry
from tests.support.data_files import data_bytes
from tests.support.fake_engine import FakeEngine
from tests.support.inputs.model_folder import GENERATION, TEMPLATE, write_model_folder
from vocabularies.builtin import load
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.formats.folders import NoTokenizer, find_tokenizer_files
from vocabularies.reference import tokenizer


def settings(folder: Path, **others: object) -> Settings:
    return Settings(model_dir=folder, **others)


def test_a_folder_is_read_with_all_its_configurations(tmp_path):
    model = read_model(settings(write_model_folder(tmp_path / "base")))
    assert model.vocabulary.digest == load("gpt2").digest
    assert model.config.template(has_tools=False) == TEMPLATE
    assert model.config.generation_defaults() == GENERATION
    named = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    assert model.config.special_tokens() == named
    assert model.notes == ()


@pytest.mark.parametrize(
    ("files", "given", "expected"),
    [
        ({}, None, 1024),  # The smaller one of both files.
        ({"config": None}, None, 2048),
        ({"config": {"text_config": {"max_position_embeddings": 7}}}, None, 7),
        ({"config": {}, "tokenizer_config": {"model_max_length": 10**30}}, None, 10**30),
        ({"config": None, "tokenizer_config": None}, None, None),
        ({}, 99, 99),
    ],
)
def test_the_length_is_the_smallest_that_the_files_give(tmp_path, files, given, expected):
    folder = write_model_folder(tmp_path / "base", **files)
    model = read_model(settings(folder, max_model_len=given))
    assert model.config.values.get("model_max_length") == expected


def test_a_model_has_the_names_of_its_operator_its_origin_its_folder_and_its_path(tmp_path):
    folder = write_model_folder(tmp_path / "base")
    names = find_model_names(settings(folder))
    assert names == ["openai/gpt-2", "base", str(folder)]
    names = find_model_names(settings(folder, model_names="my-model, other:8b"))
    assert names == ["my-model", "other:8b", "openai/gpt-2", "base", str(folder)]
    cached = tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / "0123abc"
    write_model_folder(cached, config={"_name_or_path": "/a/path/of/its/author"})
    assert find_model_names(settings(cached)) == ["Qwen/Qwen3-8B", "0123abc", str(cached)]
    for wrong in ("a b", "a\nb", "x" * 256):
        with pytest.raises(ValueError, match="WARPTOK_MODEL_NAMES"):
            find_model_names(settings(folder, model_names=wrong))


def test_a_model_is_the_only_vocabulary_and_the_default_one(tmp_path):
    folder = write_model_folder(tmp_path / "base")
    store = tmp_path / "store"
    store.mkdir()
    used = use_model(settings(folder, store_dir=store, model_names="mine", aliases="also=mine"))
    assert (used.default_vocabulary, used.preload) == ("mine", "mine")
    registry = Registry(FakeEngine(), used)
    assert list(registry.known) == ["mine"]
    for name in ("mine", "also", "openai/gpt-2", "base", str(folder)):
        assert registry.find(name).name == "mine"
    assert registry.names_to_preload() == ["mine"]
    assert [*store.iterdir()] == []
    assert use_model(Settings()) == Settings()


def test_a_folder_that_is_none_stops_the_start(tmp_path):
    with pytest.raises(ValueError, match=r"WARPTOK_MODEL_DIR: .*none is not a folder"):
        use_model(settings(tmp_path / "none"))


def test_what_is_no_tokenizer_is_said(tmp_path):
    with pytest.raises(NoTokenizer, match=r"has none of tokenizer\.json, tekken\.json"):
        read_model(settings(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(VocabularyError, match="model"):
        read_model(settings(tmp_path))


def test_templates_for_other_uses_are_read_from_their_folder(tmp_path):
    folder = write_model_folder(tmp_path / "base")
    others = folder / "additional_chat_templates"
    others.mkdir()
    (others / "tool_use.jinja").write_text("with tools" * 50)
    config = read_model(settings(folder)).config
    assert config.template(has_tools=True) == "with tools" * 50
    assert config.template(has_tools=False) == TEMPLATE
    with pytest.raises(
        VocabularyError, match=r"tool_use\.jinja: has 500 bytes; max_template_bytes"
    ):
        read_model(settings(folder, max_template_bytes=499))


def test_a_faulty_configuration_is_named(tmp_path):
    folder = write_model_folder(tmp_path / "base")
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(VocabularyError, match=r"generation_config\.json"):
        read_model(settings(folder))
    (folder / "generation_config.json").unlink()
    (folder / "special_tokens_map.json").write_text("[]")
    with pytest.raises(VocabularyError, match=r"special_tokens_map\.json: is not a JSON object"):
        read_model(settings(folder))
    (folder / "special_tokens_map.json").unlink()
    (folder / "config.json").write_text("no")
    with pytest.raises(VocabularyError, match=r"config\.json: is not JSON"):
        read_model(settings(folder))
    listed = {"added_tokens_decoder": {"7": {"content": "<no>"}}}
    (folder / "config.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(listed))
    with pytest.raises(VocabularyError, match=r"added_tokens_decoder\.7"):
        read_model(settings(folder))


def test_added_tokens_that_the_tokenizer_lacks_are_refused(tmp_path):
    """transformers adds them, unless the configuration lists the added tokens itself."""
    folder = write_model_folder(tmp_path / "base", added_tokens={"<|endoftext|>": 50256})
    assert read_model(settings(folder)).vocabulary.digest == load("gpt2").digest
    (folder / "added_tokens.json").write_text('{"<|endoftext|>": 50256, "[PAD]": 50257}')
    with pytest.raises(VocabularyError, match=r"added_tokens\.json: \[PAD\]: is not an added"):
        read_model(settings(folder))
    listed = {"added_tokens_decoder": {"50256": {"content": "<|endoftext|>"}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(listed))
    assert read_model(settings(folder)).vocabulary.digest == load("gpt2").digest


def test_special_tokens_that_are_not_matched_are_refused(tmp_path):
    config = {"split_special_tokens": True}
    folder = write_model_folder(tmp_path / "base", tokenizer_config=config)
    with pytest.raises(VocabularyError, match=r"tokenizer_config\.json: split_special_tokens"):
        read_model(settings(folder))
    (folder / "tokenizer_config.json").write_text('{"split_special_tokens": false}')
    assert read_model(settings(folder)).vocabulary.digest == load("gpt2").digest


@pytest.mark.parametrize(
    ("name", "is_refused"), [("Qwen2TokenizerFast", True), ("PreTrainedTokenizerFast", False)]
)
def test_a_blank_before_texts_is_refused_where_transformers_puts_it_there(
    tmp_path, name, is_refused
):
    """Beside a tokenizer.json without it, the classes of byte-level BPE obey, and others do not."""
    config = {"tokenizer_class": name, "add_prefix_space": True}
    folder = write_model_folder(tmp_path / "base", tokenizer_config=config)
    if is_refused:
        with pytest.raises(VocabularyError, match=r"tokenizer_config\.json: add_prefix_space"):
            read_model(settings(folder))
    else:
        assert read_model(settings(folder)).vocabulary.digest == load("gpt2").digest


def test_what_a_tokenizer_says_and_the_service_does_not_follow_is_noted(tmp_path):
    folder = write_model_folder(tmp_path / "base")
    content = (folder / "tokenizer.json").read_bytes()
    assert content.count(b'"truncation":null') == 1
    changed = content.replace(b'"truncation":null', b'"truncation": {"max_length": 5}')
    (folder / "tokenizer.json").write_bytes(changed)
    (note,) = read_model(settings(folder)).notes
    assert note.startswith("truncation")


def test_a_sentencepiece_model_is_read_with_the_class_that_its_configuration_names(tmp_path):
    models = Path(__file__).parents[2] / "vocabularies" / "formats" / "sentencepiece" / "models"
    model = (models / "bpe_llama.model").read_bytes()
    (tmp_path / "tokenizer.model").write_bytes(model)
    assert read_model(settings(tmp_path)).vocabulary.prefix == ()
    config = {"tokenizer_class": "LlamaTokenizer", "model_max_length": 2048}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = read_model(settings(tmp_path))
    assert found.vocabulary.prefix == (1,)
    assert found.config.values["model_max_length"] == 2048
    (tmp_path / "other.model").write_bytes(model)
    with pytest.raises(NoTokenizer, match="and not exactly one"):
        read_model(settings(tmp_path))


@pytest.mark.parametrize("name", ["qwen.tiktoken", "tokenizer.model"])
def test_a_rank_file_needs_its_pretokenizer_and_takes_special_tokens_as_listed(tmp_path, name):
    (ranks,) = write_vocabulary(load("gpt2"), "tiktoken").values()
    lines = ranks.splitlines(keepends=True)
    (tmp_path / name).write_bytes(b"".join(lines[:-1]))  # The whole file is known by its digest.
    listed = {"added_tokens_decoder": {"50256": {"content": "<|endoftext|>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(listed))
    assert find_tokenizer_files(tmp_path) == [tmp_path / name]
    with pytest.raises(VocabularyError, match="pretokenizer"):
        read_model(settings(tmp_path))
    model = read_model(settings(tmp_path, model_pretokenizer="gpt2"))
    text = "Hello, world!<|endoftext|>"
    assert tokenizer.encode(model.vocabulary, text).ids == tokenizer.encode(load("gpt2"), text).ids


@pytest.mark.slow
def test_a_rank_file_of_a_real_model_gives_the_ids_of_its_tokenizer_json(tmp_path):
    ranks = data_bytes("vocab/llama3/llama3.tiktoken")
    whole = read_vocabulary({"tokenizer.json": data_bytes("vocab/llama3/tokenizer.json.xz")})
    (tmp_path / "tokenizer.model").write_bytes(ranks)
    special = {str(each.id): {"content": each.content} for each in whole.special_tokens}
    config = {"added_tokens_decoder": special}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    model = read_model(settings(tmp_path, model_pretokenizer="llama3"))
    for text in ("Hello, world! 北京 12345", "<|start_header_id|>user<|end_header_id|>\n\nHi"):
        for vocabulary in (whole, model.vocabulary):
            begin = len(vocabulary.prefix)
            ids = tokenizer.encode(vocabulary, text).ids[begin:]
            expected = tokenizer.encode(whole, text).ids[len(whole.prefix) :]
            assert ids == expected
