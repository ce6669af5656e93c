"""Chunks of a text are those that Hugging Face's library and LangChain's splitter make."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tokenizers import Encoding, Tokenizer

from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.data_files import ROOT
from tests.support.waiting import run
from vocabularies import builtin
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.sequences.chunks import find_chunks

TEXT = (ROOT / "README.md").read_text()[:3000] + " 北京 🙂🙂 naïve café"
SIZES = [(16, 0), (16, 5), (7, 4), (512, 100), (1000, 0)]
DNA = "ACGTTGCATTAGGC" * 40


def hugging_face(name: str) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json(builtin.load(name)))


async def post(client, **body):
    response = await client.post("/v1/chunks", json=body)
    return response.status_code, response.json()


@pytest.mark.parametrize(
    ("name", "texts"),
    [("gpt2", [TEXT, "", "Hello"]), ("dnabert2", [DNA, ""]), ("gena_lm_t2t_32k", [DNA])],
)
@pytest.mark.slow
def test_chunks_are_the_overflowing_tokens_of_hugging_face(name, texts):
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            reference = hugging_face(name)
            for text, (size, overlap) in itertools.product(texts, SIZES):
                status, answer = await post(
                    client, vocabulary=name, text=text, chunk_size=size, chunk_overlap=overlap
                )
                assert status == 200
                reference.enable_truncation(size, stride=overlap)
                first = reference.encode(text)
                parts = [first, *first.overflowing]
                assert answer["ids"] == [part.ids for part in parts]
                assert answer["offsets"] == [find_place(part) for part in parts]

    run(scenario)


def find_place(part: Encoding) -> list[int]:
    """Return the begin and the end of a part's own tokens in the text."""
    pairs = zip(part.offsets, part.special_tokens_mask, strict=True)
    spans = [span for span, is_special in pairs if not is_special]
    return [spans[0][0], spans[-1][1]] if spans else [0, 0]


def test_chunks_without_overlap_are_the_text_again_and_places_are_in_the_unit():
    async def scenario():
        async with serving(CpuEngine()) as (client, _):
            body = {"vocabulary": "gpt2", "text": "Hello, wörld 🙂!", "chunk_size": 2}
            status, answer = await post(client, **body, return_texts=True)
            assert status == 200
            assert answer["num_tokens"] == sum(map(len, answer["ids"]))
            assert answer["starts"] == list(range(0, answer["num_tokens"], 2))
            assert answer["texts"][:3] == ["Hello,", " wör", "ld 🙂"]
            for unit, encoding, size in (
                ("codepoints", "utf-32-le", 4),
                ("utf16", "utf-16-le", 2),
                ("bytes", "utf-8", 1),
            ):
                status, answer = await post(client, **body, offset_unit=unit, return_texts=True)
                data = body["text"].encode(encoding)
                pieces = [
                    data[size * b : size * e].decode(encoding, "ignore")
                    for b, e in answer["offsets"]
                ]
                assert pieces == answer["texts"]

    run(scenario)


WRONG = [
    ({"chunk_size": 0}, 422, "/chunk_size"),
    ({"chunk_size": 4, "chunk_overlap": 4}, 422, "/chunk_overlap"),
    ({"vocabulary": "dnabert2", "text": "ACGT", "chunk_size": 2}, 422, "/chunk_size"),
    ({"vocabulary": "dnabert2", "chunk_size": 3, "chunk_overlap": 1}, 422, "/chunk_overlap"),
    ({"text": "word " * 500, "chunk_size": 100, "chunk_overlap": 99}, 413, "/chunk_overlap"),
    ({"text": "word " * 300, "chunk_size": 9, "chunk_overlap": 8}, 413, "/return_texts"),
    ({"text": "<|endoftext|>", "special": "refuse"}, 422, "/text: byte 0"),
    ({"if_digest": "0"}, 412, "/if_digest"),
]


def test_what_is_wrong_is_refused_at_its_field():
    async def scenario():
        limits = {"max_window_ids": 5000, "max_text_bytes": 4000}
        async with serving(CpuEngine(), **limits) as (client, _):
            for change, status, where in WRONG:
                body = {"vocabulary": "gpt2", "text": "a", "return_texts": True} | change
                got, answer = await post(client, **body)
                assert (got, answer["where"]) == (status, where)

    run(scenario)


@pytest.mark.parametrize(
    ("num_tokens", "size", "overlap"), [(0, 4, 1), (4, 4, 1), (10, 4, 1), (11, 4, 3)]
)
def test_neighbours_overlap_and_the_last_reaches_the_end(num_tokens, size, overlap):
    places = find_chunks(num_tokens, size, overlap)
    assert places[0, 0] == 0
    assert places[-1, 1] == num_tokens
    assert np.all(places[1:, 0] == places[:-1, 1] - overlap)
    assert np.all(places[:-1, 1] < num_tokens)
