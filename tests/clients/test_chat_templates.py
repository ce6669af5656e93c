"""Chats have the text and the ids that transformers makes of them, which renders them for vLLM."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.engines.cpu.engine import CpuEngine
from service.registry.tokenizer_config import TokenizerConfig
from tests.clients.test_clients import run_client
from tests.support.app_client import serving
from tests.support.inputs.chat_templates import read_templates
from tests.support.inputs.chats import CHATS
from tests.support.waiting import run
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

pytestmark = [pytest.mark.slow]
ENGINE = CpuEngine()
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
MARKS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "[INST]", "<|end|>", "<bos>")
RENDER = "/v1/chat/completions/render"


async def upload(client: httpx.AsyncClient) -> None:
    """Upload GPT-2 with more special tokens, some of which templates write."""
    (document,) = write_vocabulary(load("gpt2"), "tokenizer.json").values()
    tokenizer = json.loads(document)
    (listed,) = tokenizer["added_tokens"]
    added = [listed | {"id": 50257 + i, "content": mark} for i, mark in enumerate(MARKS)]
    tokenizer["added_tokens"] += added
    answer = await client.put("/v1/vocabularies/chat", content=json.dumps(tokenizer))
    assert answer.status_code == 201, answer.text


async def get_ids(client: httpx.AsyncClient, chat: dict[str, Any]) -> list[int] | None:
    """Return the ids of a chat, which all routes agree on; None if it is refused."""
    answer = await client.post(RENDER, json={"model": "chat"} | chat)
    tokens = await client.post("/tokenize", json={"model": "chat"} | chat)
    count = await client.post("/tokenize/count", json={"model": "chat"} | chat)
    if answer.status_code != 200:
        assert answer.status_code in (400, 422), answer.text
        assert tokens.status_code == count.status_code == answer.status_code
        return None
    ids: list[int] = answer.json()["token_ids"]
    assert tokens.json()["tokens"] == ids
    assert count.json()["count"] == len(ids)
    return ids


def test_chats_have_the_text_and_ids_that_transformers_makes_of_them(tmp_path: Path) -> None:
    templates = read_templates()
    # Every beginning of a chat is one, too: the sections of the one before are known then.
    chats = CHATS | {
        f"{name}, {size}": chat | {"messages": chat["messages"][:size]}
        for name, chat in CHATS.items()
        for size in range(1, len(chat["messages"]))
    }
    case = {"templates": templates, "chats": chats, "names": NAMES}
    cases, answer = tmp_path / "cases.json", tmp_path / "answer.json"
    cases.write_text(json.dumps(case))
    run_client("transformers", str(cases), str(answer), script="chat_templates")
    texts: dict[str, dict[str, list[str | None]]] = json.loads(answer.read_text())

    async def scenario() -> None:
        async with serving(ENGINE) as (client, service):
            await upload(client)
            num_rendered = 0
            for template, source in templates.items():
                config = TokenizerConfig(NAMES | {"chat_template": source})
                entries = service.registry.entries
                entries["chat"] = replace(entries["chat"], config=config)
                for name in sorted(chats):
                    given = texts[template][name]
                    ids = await get_ids(client, chats[name])
                    if ids is None:
                        assert None in given, (template, name, given)
                        continue
                    num_rendered += 1
                    wanted = [
                        (await client.post("/v1/encode", json={"vocabulary": "chat", "text": text}))
                        for text in given
                        if text is not None
                    ]
                    assert ids in [each.json()["ids"] for each in wanted], (template, name)
            assert num_rendered > 20 * len(templates)

    run(scenario)
