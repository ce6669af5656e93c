"""A tokenizer_config.json that says other ids than the files beside it is refused."""

from __future__ import annotations

import json

import pytest

from service.engines.cpu.engine import CpuEngine
from service.registry.tokenizer_config import TokenizerConfig
from tests.support.app_client import serving
from tests.support.waiting import run
from vocabularies.builtin import load
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
