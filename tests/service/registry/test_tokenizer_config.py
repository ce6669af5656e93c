"""A tokenizer_config.json that says other ids than the files beside it is refused."""

from __future__ import annotations

import json

import pytest

from service.engines.cpu.engine import CpuEngine
from service.registry.tokenizer_config import TokenizerConfig
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.builtin import load
from vocabularies.errors import VocabularyError
from vocabularies.formats import write_vocabulary

ENGINE = CpuEngine()
FILE = "tokenizer_config.json"
END = {"50256": {"content": "<|endoftext|>", "special": True}}


async def answer_to(client, format, url="", **config):
    """GPT-2 in these files, with a configuration."""
    files = write_vocabulary(load("gpt2"), format) | {FILE: json.dumps(config).encode()}
    parts = {name: (name, content) for name, content in files.items()}
    return (await client.put(f"/v1/vocabularies/mine?replace=true{url}", files=parts)).json()


@pytest.mark.parametrize("format", ["tokenizer.json", "vocab.json"])
@pytest.mark.parametrize(
    ("listed", "place"),
    [
        (END, None),
        (None, None),
        (END | {"50257": {"content": "<|im_start|>"}}, ".50257"),
        ({"50255": {"content": "<|endoftext|>"}}, ".50255"),
        ({"0": {"content": "!"}}, ".0"),  # A token, but text to the vocabulary.
        ({"50256": "<|endoftext|>"}, None),
        ({"50256": {}}, ".50256"),
        ([], None),
        ([1], ""),
    ],
)
@pytest.mark.slow
def test_added_tokens_that_the_vocabulary_lacks_are_refused(format, listed, place):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await answer_to(client, format, added_tokens_decoder=listed)
            if place is None:
                assert answer["name"] == "mine"
            else:
                assert (answer["status"], answer["code"]) == (422, "vocabulary_invalid")
                assert answer["where"] == f"{FILE}: added_tokens_decoder{place}"

    run(scenario)


@pytest.mark.parametrize(
    ("config", "url", "place"),
    [
        ({"tokenizer_class": "GPT2Tokenizer"}, "", None),
        ({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": False}, "", None),
        ({"tokenizer_class": "Qwen2Tokenizer"}, "", "tokenizer_class"),
        ({"tokenizer_class": ["GPT2Tokenizer"]}, "", "tokenizer_class"),
        ({"tokenizer_class": "Qwen2Tokenizer"}, "&pretokenizer=qwen2", None),
        ({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}, "", "add_bos_token"),
        ({"add_prefix_space": True}, "&pretokenizer=gpt2", "add_prefix_space"),
    ],
)
@pytest.mark.slow
def test_a_tokenizer_that_the_gpt2_pair_does_not_describe_is_refused(config, url, place):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await answer_to(client, "vocab.json", url, **config)
            assert answer.get("where") == (place and f"{FILE}: {place}")
            taken = await answer_to(client, "tokenizer.json", **config)
            assert taken["name"] == "mine"

    run(scenario)


def test_every_named_token_is_there_for_templates():
    """`add_bos_token` is no token; Gemma 3 has its own names in both places."""
    config = {
        "add_bos_token": True,
        "bos_token": {"content": "<bos>", "special": True},
        "image_token": "<image>",
        "pad_token": None,
        "sep_token": {},
        "extra_special_tokens": {"boi_token": "<boi>", "image_token": "<other>"},
        "name": "x",
    }
    named = {"boi_token": "<boi>", "bos_token": "<bos>", "image_token": "<image>"}
    assert TokenizerConfig(config).special_tokens() == named
    assert TokenizerConfig({"extra_special_tokens": ["<a>"]}).special_tokens() == {}


def read(**files):
    contents = {f"{name}.json": json.dumps(values).encode() for name, values in files.items()}
    return TokenizerConfig.of_files(contents, 10_000)


def test_special_tokens_map_counts_where_transformers_reads_it():
    """transformers reads it for a configuration that lists no added tokens, and then before it."""
    config, tokens = {"bos_token": "<a>", "eos_token": "<e>"}, {"bos_token": "<b>"}
    made = read(tokenizer_config=config, special_tokens_map=tokens)
    assert made.special_tokens() == {"bos_token": "<b>", "eos_token": "<e>"}
    listed = config | {"added_tokens_decoder": {}}
    made = read(tokenizer_config=listed, special_tokens_map=tokens | {"pad_token": "<p>"})
    assert made.special_tokens() == config | {"pad_token": "<p>"}


def test_templates_may_be_named_in_an_object_or_come_with_a_processor():
    made = read(tokenizer_config={"chat_template": {"default": "a", "tool_use": "b", "rag": 5}})
    assert made.template(has_tools=False) == "a"
    assert made.template(has_tools=True) == "b"
    made = read(tokenizer_config={"chat_template": None}, chat_template={"chat_template": "c"})
    assert made.template(has_tools=True) == "c"
    made = read(tokenizer_config={"chat_template": "a"}, chat_template={"chat_template": "c"})
    assert made.template(has_tools=True) == "a"


@pytest.mark.parametrize("name", ["temperature", "top_k", "max_new_tokens"])
@pytest.mark.parametrize("value", ["0.7", True, [1]])
def test_a_default_of_sampling_that_is_no_number_is_refused(name, value):
    with pytest.raises(VocabularyError, match=f"generation_config.json: {name}: is not a number"):
        read(generation_config={name: value})
    assert read(generation_config={name: None, "eos_token_id": [1]}) is not None


@pytest.mark.parametrize(
    "template", [1, True, [{"name": "default"}], {"default": 1}, {"tool_use": None}]
)
def test_a_chat_template_that_is_no_text_is_refused(template):
    with pytest.raises(VocabularyError, match=r"config\.json: chat_template: must be"):
        read(tokenizer_config={"chat_template": template})


def test_what_transformers_follows_and_the_service_does_not_is_told():
    """transformers 5.24 makes tokens of nope, hello, <a> and <b>, and pads at the left."""
    end = "<|endoftext|>"
    config = {
        "bos_token": {"content": end},
        "eos_token": "nope",
        "pad_token": "hello",
        "unk_token": None,
        "image_token": "<image>",
        "additional_special_tokens": [end, "<a>"],
        "extra_special_tokens": {"x_token": "<b>"},
        "padding_side": "left",
        "truncation_side": "right",
    }

    async def scenario():
        async with serving(ENGINE) as (client, _):
            answer = await answer_to(client, "tokenizer.json", **config)
            told = [note.split(" of ")[0] for note in answer["notes"]]
            assert told == [
                "eos_token 'nope'",
                "pad_token 'hello'",
                "additional_special_tokens.1 '<a>'",
                "extra_special_tokens.x_token '<b>'",
                "padding_side",
            ]
            for wrong in (5, {}, {"content": 5}):
                answer = await answer_to(client, "tokenizer.json", eos_token=wrong)
                assert answer["where"] == f"{FILE}: eos_token"

    run(scenario)
