"""Requests that tests of other systems' routes share: chats, a template, uploads and calls."""

from __future__ import annotations

import json

from service.engines.cpu.engine import CpuEngine
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

ENGINE = CpuEngine()
HELLO = [15496, 11, 995]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPTIONS = (
    "{{ reasoning_effort | default('unset') }} {{ enable_thinking | default('unset') }} "
    "{{ documents }} {{ add_generation_prompt }}"
)
CHAT = [{"role": "user", "content": "Hello, world"}]
CHAT_TEXT = "<|im_start|>user\nHello, world<|im_end|>\n<|im_start|>assistant\n"


async def post(client, path, **body):
    return await client.post(path, json=body)


async def ids_of(client, text, name="gpt2", **options):
    body = {"vocabulary": name, "text": text} | options
    return (await client.post("/v1/encode", json=body)).json()["ids"]


async def upload(client, template=TEMPLATE, **config):
    """GPT-2 once more, under the name chat, with a template."""
    (document,) = write_vocabulary(load("gpt2"), "tokenizer.json").values()
    values = {"chat_template": template, "eos_token": "<|endoftext|>"} | config
    files = {
        "tokenizer": ("tokenizer.json", document),
        "config": ("tokenizer_config.json", json.dumps(values).encode()),
    }
    answer = await client.put("/v1/vocabularies/chat?replace=true", files=files)
    assert answer.status_code in (200, 201), answer.text
