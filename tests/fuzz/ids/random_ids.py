"""Compares random vocabularies, uploaded and used over HTTP, with the reference."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import asdict
from random import Random
from typing import Any

import httpx
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from service.engines.base import Engine
from service.engines.cpu.engine import CpuEngine
from tests.fuzz.texts import nasty_text, strings
from tests.support.app_client import serving
from tests.support.inputs.sequence_strategies import character_vocabularies, kmer_vocabularies
from tests.support.inputs.tokenizer_documents import bpe_documents, encoded, rank_file, rank_lists
from vocabularies.batch.batch import EncodeOptions, RowRefused
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.model import canonical
from vocabularies.model.types import Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

JSON = {"content-type": "application/json"}
ROWS = 24
SPLITS = st.sampled_from(["none", "gpt2", "cl100k_base", "o200k_base", "llama3", "qwen2"])
Found = Callable[[str], None]
OPTIONS = st.builds(
    EncodeOptions,
    add_special_tokens=st.booleans(),
    special=st.sampled_from(["match", "match", "plain", "refuse"]),
    max_length=st.none() | st.integers(0, 12),
    truncation_side=st.sampled_from(["right", "left"]),
    reverse_complement=st.sampled_from([False, False, False, True]),
    circular=st.sampled_from([None, None, None, True, False]),
    spans=st.just(True),
)


@st.composite
def uploads(draw: st.DrawFn) -> tuple[bytes, str, dict[str, str]]:
    """Draw a vocabulary file, the letters for its texts, and the options for its upload."""
    match draw(st.integers(0, 3)):
        case 0:
            document, letters = draw(bpe_documents())
            return encoded(document), letters, {}
        case 1:
            tokens = draw(rank_lists())
            return rank_file(tokens), "abcé中 ab", {"pretokenizer": draw(SPLITS)}
        case 2:
            return canonical.to_bytes(draw(character_vocabularies())), "ACGTNacgté中ß", {}
        case _:
            return canonical.to_bytes(draw(kmer_vocabularies())), "ACGTACGTACGTNacgtR ", {}


def random_hunt(
    num_examples: int, number: int, found: Found, new_engine: Callable[[], Engine] = CpuEngine
) -> tuple[int, int]:
    """Compare random vocabularies, each in a new engine; return their number and that of texts."""
    counts = [0, 0]

    @seed(number)
    @settings(
        max_examples=num_examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(uploads(), st.lists(OPTIONS, min_size=ROWS, max_size=ROWS), st.integers(0, 2**32))
    def compare(
        upload: tuple[bytes, str, dict[str, str]], options: list[EncodeOptions], place: int
    ) -> None:
        rng = Random(place)
        if asyncio.run(through_the_apis(*upload, options, rng, found, new_engine())):
            counts[0] += 1
            counts[1] += len(options)

    compare()
    return counts[0], counts[1]


async def through_the_apis(
    content: bytes,
    letters: str,
    beside: dict[str, str],
    options: list[EncodeOptions],
    rng: Random,
    found: Found,
    engine: Engine,
) -> bool:
    """Upload, encode and decode over HTTP; return whether the service accepted the vocabulary."""
    try:
        vocabulary = read_vocabulary({"mine": content}, **beside)
    except VocabularyError:
        return False
    if isinstance(vocabulary.model, Upstream):
        return False
    some = [*letters, *strings(vocabulary, rng)]
    texts = [
        nasty_text(rng, some, 4)
        if rng.random() < 0.2
        else "".join(rng.choices(some, k=rng.randrange(30)))
        for _ in options
    ]
    async with serving(engine) as (client, _):
        answer = await client.put("/v1/vocabularies/mine", content=content, params=beside)
        if answer.status_code != 201:
            found(f"not taken: {answer.text}: {shown(content)}")
            return False
        await check_encode(client, vocabulary, texts, options, content, found)
        await check_decode(client, vocabulary, rng, content, found)
        return True


async def check_encode(
    client: httpx.AsyncClient,
    vocabulary: Vocabulary,
    texts: list[str],
    options: list[EncodeOptions],
    content: bytes,
    found: Found,
) -> None:
    fields: dict[str, list[Any]] = {}
    for each in options:
        for name, value in asdict(each).items():
            fields.setdefault(name, []).append(value)
    del fields["spans"], fields["invalid_utf8"]  # JSON has no such texts.
    body = {"vocabulary": "mine", "texts": texts, "return_offsets": "bytes", **fields}
    answer = (await client.post("/v1/encode/batch", content=json.dumps(body), headers=JSON)).json()
    faults = {fault["row"]: fault["code"] for fault in answer.get("errors", [])}
    for row, (text, wanted) in enumerate(zip(texts, options, strict=True)):
        about = f"{text!r} {wanted}"
        try:
            expected = tokenizer.encode(vocabulary, text, wanted)
        except RowRefused as refused:
            if faults.get(row) != refused.error.code:
                found(f"{about}: {faults.get(row)}, not {refused.error}: {shown(content)}")
            continue
        ids = answer["ids"][row]
        if ids != expected.ids or row in faults:
            found(f"{about}: {ids} {faults.get(row)}, not {expected.ids}: {shown(content)}")
        elif answer["offsets"][row] != [list(span) for span in expected.spans]:
            found(
                f"{about}: offsets {answer['offsets'][row]}, not {expected.spans}: {shown(content)}"
            )


async def check_decode(
    client: httpx.AsyncClient, vocabulary: Vocabulary, rng: Random, content: bytes, found: Found
) -> None:
    """Check that random ids decode to the reference's bytes, in base64 so that all are exact."""
    rows = [
        [
            rng.randrange(-1, len(vocabulary) + 1)
            if rng.random() < 0.02
            else rng.randrange(len(vocabulary))
            for _ in range(rng.randrange(20))
        ]
        for _ in range(ROWS)
    ]
    for skip in (False, True):
        body = {"vocabulary": "mine", "ids": rows, "as_base64": True, "skip_special_tokens": skip}
        answer = (await client.post("/v1/decode/batch", json=body)).json()
        refused = {fault["row"]: fault["code"] for fault in answer.get("errors", [])}
        for row, ids in enumerate(rows):
            try:
                expected: bytes | str = tokenizer.decode(vocabulary, ids, skip)
            except RowRefused as error:
                expected = error.error.code
            got = refused.get(row) or base64.b64decode(answer["base64"][row])
            if got != expected:
                found(f"{ids} skip={skip}: {got!r}, not {expected!r}: {shown(content)}")


def shown(content: bytes) -> str:
    return base64.b64encode(content).decode()
