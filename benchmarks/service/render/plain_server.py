r"""A server that renders chats without warptok, as a user would write it: the baseline.

FastAPI with a pydantic model around transformers' `apply_chat_template` and the Hugging Face
tokenizer, a sync handler, nothing tuned. It needs transformers, and nothing of warptok.
Run: python -m uvicorn benchmarks.service.render.plain_server:app --loop uvloop --http httptools
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from benchmarks.service.render.reference import parse_arguments

app = FastAPI()
folder = Path(os.environ["PLAIN_MODEL"])
template = AutoTokenizer.from_pretrained(folder)
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))


class Chat(BaseModel):
    """A chat."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


class Rendered(BaseModel):
    """Its ids."""

    token_ids: list[int]


@app.post("/v1/chat/completions/render")
def render(chat: Chat) -> Rendered:
    """Render one chat."""
    text = template.apply_chat_template(
        parse_arguments(chat.messages),
        tools=chat.tools,
        add_generation_prompt=True,
        tokenize=False,
    )
    return Rendered(token_ids=tokenizer.encode(text, add_special_tokens=False).ids)


@app.get("/readyz")
def readyz() -> dict[str, bool]:
    """Answer at once."""
    return {"ready": True}
