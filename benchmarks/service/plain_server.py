r"""A server without warptok, as a user would write it: the baseline of the HTTP benchmarks.

FastAPI with pydantic models around a Hugging Face tokenizer, a sync handler, nothing tuned.
Run: python -m uvicorn benchmarks.service.plain_server:app --loop uvloop --http httptools \
         --no-access-log
"""

from __future__ import annotations

import os

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from tokenizers import Tokenizer

app = FastAPI()
NAME = os.environ.get("PLAIN_VOCABULARY", "gpt2")
tokenizers = {NAME: Tokenizer.from_file(os.environ["PLAIN_TOKENIZER_JSON"])}


class EncodeRequest(BaseModel):
    """One text."""

    vocabulary: str
    text: str
    add_special_tokens: bool = True


class EncodeResponse(BaseModel):
    """Its ids."""

    ids: list[int]
    num_tokens: int


@app.post("/v1/encode")
def encode(request: EncodeRequest) -> EncodeResponse:
    """Encode one text."""
    tokenizer = tokenizers.get(request.vocabulary)
    if tokenizer is None:
        raise HTTPException(404, "no such vocabulary")
    ids = tokenizer.encode(request.text, add_special_tokens=request.add_special_tokens).ids
    return EncodeResponse(ids=ids, num_tokens=len(ids))


class EncodeBatchRequest(BaseModel):
    """Many texts."""

    vocabulary: str
    texts: list[str]
    add_special_tokens: bool = True


class EncodeBatchResponse(BaseModel):
    """Their ids."""

    ids: list[list[int]]
    num_tokens: list[int]


@app.post("/v1/encode/batch")
def encode_batch(request: EncodeBatchRequest) -> EncodeBatchResponse:
    """Encode many texts."""
    tokenizer = tokenizers.get(request.vocabulary)
    if tokenizer is None:
        raise HTTPException(404, "no such vocabulary")
    encodings = tokenizer.encode_batch(request.texts, add_special_tokens=request.add_special_tokens)
    ids = [encoding.ids for encoding in encodings]
    return EncodeBatchResponse(ids=ids, num_tokens=[len(row) for row in ids])


@app.get("/readyz")
def readyz() -> dict[str, bool]:
    """Answer at once."""
    return {"ready": True}
