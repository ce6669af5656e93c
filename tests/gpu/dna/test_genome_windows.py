"""Sequences as long as models of genomes take: 20 kb, 131 kb and a megabase of two genomes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer

from gpu.kernels.job import constant
from gpu.streaming import encode_stream
from service.engines.cpu.engine import CpuEngine
from tests.support.data_files import records
from tests.support.each_device import DEVICES, new_engine
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.types import Bpe

PLAIN = EncodeOptions(add_special_tokens=False)
MEGABASE = 1_000_000
GENOMES = {
    "bacterium": "dna/ecoli_K12_MG1655.fa.gz",
    "human": "dna/human_GRCh37_chr22_20-21M.fa.gz",
}
WINDOWS = [
    ("bacterium", 20_000),
    ("bacterium", 131_072),
    ("human", 20_000),
    ("human", 131_072),
    ("human", MEGABASE),
]
IN_FRONT = (0, 1, constant("LARGE_CHUNK") - 1, constant("TILE") + 1)
"""Bases of the row before a window, so that it begins at and beside borders of chunks and tiles."""

engine_of = functools.cache(new_engine)


@functools.cache
def library_ids_of(name: str) -> Callable[[str], list[int]]:
    """Return the library's ids for BPE, and the CPU engine's for other models."""
    vocabulary, cpu = load(name), CpuEngine()
    if not isinstance(vocabulary.model, Bpe):
        return lambda text: cpu.encode(vocabulary, Batch([text], options=PLAIN)).ids.tolist()
    tokenizer = Tokenizer.from_str(tokenizer_json(vocabulary))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(("genome", "window"), WINDOWS)
@pytest.mark.parametrize("name", ["dnabert2", "gena_lm_t2t_32k", "nt_v2", "mtdna6", "hyenadna"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_a_long_window_has_its_ids_wherever_it_lies(device, name, genome, window):
    engine, vocabulary = engine_of(device), load(name)
    (sequence,) = records(GENOMES[genome])
    text = sequence[-window:]
    front = [sequence[:count] for count in (IN_FRONT if window < MEGABASE else IN_FRONT[-1:])]
    rows = [row for own in front for row in (own, text)]
    expected = {row: library_ids_of(name)(row) for row in {*rows}}
    ids = [token_id for row in rows for token_id in expected[row]]
    ends = np.cumsum([0, *(len(expected[row]) for row in rows)]).tolist()
    batch = Batch(rows, options=PLAIN)
    encoded = engine.encode(vocabulary, batch)
    assert encoded.ids.tolist() == ids and encoded.offsets.tolist() == ends
    out = np.zeros(len(batch.data), np.uint16)
    got = encode_stream(engine, vocabulary, batch.data, batch.offsets, out, chunk_bytes=1 << 18)
    assert out[: len(ids)].tolist() == ids and got.tolist() == ends
