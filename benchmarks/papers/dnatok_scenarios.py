"""DNATok's five scenarios (Figures 10 to 13): a tokenizer and a model, with ours beside.

The paper does not give the shapes of its scenarios; SCENARIOS are ours. The models are small and
have random weights (`dnatok_models`). Evo2's tokenizer encodes each byte as its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.papers import dnatok
from benchmarks.papers.dna_ways import HF_NATIVE, HF_RUST, PLAIN_PYTHON, host_ways, pad, rows_of
from benchmarks.papers.session import Differs, Part, Row, Rows, Session
from benchmarks.support.timing import Run, clocked
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.formats.huggingface.writer import tokenizer_json

SCENARIOS = {
    "short": (64, 128),
    "latency": (1, 512),
    "throughput": (512, 512),
    "long": (16, 8192),
    "ultra-long": (1, 131_072),
}
MODELS = ("nt_v2", "hyenadna", "evo2", "dnabert2")
LONGEST_ALIBI = 8192
WITHOUT_FRAME = EncodeOptions(add_special_tokens=False)
KMER = 6
Texts = Sequence[str]


@dataclass(frozen=True, slots=True)
class Tokenizers:
    """The compared ways from rows to a matrix of ids: baselines on the host, ours on the device."""

    num_ids: int
    baselines: dict[str, Callable[[Texts], Any]]
    ours: Callable[[Texts], Any]


def scenario_rows(session: Session) -> Rows:
    """Time the tokenizer alone, and the tokenizer with a model behind it."""
    try:
        import torch  # noqa: F401
    except ImportError:
        session.leave_out("torch is not installed: no scenarios of DNATok")
        return
    for name in MODELS:
        tokenizers = _tokenizers(session, name)
        for scenario, (num_rows, num_letters) in SCENARIOS.items():
            if name == "dnabert2" and num_letters > LONGEST_ALIBI:
                session.leave_out(f"{name}, {scenario}: ALiBi's bias would be too large")
                continue
            texts = rows_of(num_rows, num_letters)
            yield from _timed(session, name, scenario, tokenizers, texts)


def _timed(
    session: Session, name: str, scenario: str, tokenizers: Tokenizers, texts: list[str]
) -> Rows:
    import torch

    from benchmarks.papers.dnatok_models import make_model

    model = make_model(name, tokenizers.num_ids, dnatok.DEVICE)
    expected = tokenizers.ours(texts)
    runs: dict[str, Run] = {}

    def timed(ids_of: Callable[[Texts], Any], has_model: bool) -> Run:
        def work() -> None:
            ids = ids_of(texts)
            if has_model:
                model(ids)
            dnatok.wait()

        return clocked(work)

    ways: dict[str, Callable[[Texts], Any]] = {"warptok": tokenizers.ours}
    for way, encode in tokenizers.baselines.items():
        ways[way] = _to_device(encode)
    for way, ids_of in ways.items():
        if not torch.equal(ids_of(texts).long(), expected.long()):
            raise Differs(f"{name}, {scenario}: {way} has other ids than warptok")
        runs[f"{way}, ids"] = timed(ids_of, has_model=False)
        runs[f"{way}, model"] = timed(ids_of, has_model=True)
    runs["model alone"] = timed(lambda _: expected, has_model=True)
    row: Row = {"table": "scenarios", "model": name, "scenario": scenario}
    row |= {"rows": len(texts), "letters": len(texts[0])}
    for way, seconds in session.in_turns(runs).items():
        yield row | {"way": way, "seconds": seconds}


def _to_device(encode: Callable[[Texts], Any]) -> Callable[[Texts], Any]:
    import torch

    return lambda texts: torch.tensor(np.asarray(encode(texts)), device=dnatok.DEVICE)


def _tokenizers(session: Session, name: str) -> Tokenizers:
    """Make the tokenizers of a model."""
    if name == "dnabert2":
        return _byte_pairs(session)
    vocabulary = load("nt_v2" if name == "nt_v2" else "hyenadna")
    layer = _layer(vocabulary)
    if name == "nt_v2":
        ids = {token.decode(): i for i, token in enumerate(vocabulary.tokens) if token}
        baselines = {PLAIN_PYTHON: lambda texts: [_kmers(text, ids) for text in texts]}
        return Tokenizers(len(vocabulary), baselines, layer.ids_from_strings)
    if name == "evo2":
        python = {"list(bytes) in Python": lambda texts: [[*text.encode()] for text in texts]}
        bytes_layer = _layer(_Bytes())
        return Tokenizers(256, python, bytes_layer.ids_from_strings)
    ways = host_ways(session)
    chosen = {way: ways[way].encode for way in (HF_NATIVE, PLAIN_PYTHON) if way in ways}
    return Tokenizers(len(vocabulary), chosen, layer.ids_from_strings)


class _Bytes:
    """Evo2's tokenizer of bytes, for `discover`."""

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def get_vocab(self) -> dict[str, int]:
        return {chr(byte): byte for byte in range(128)}


def _layer(tokenizer: Any) -> Any:
    import torch

    from gpu.embedding.layer import EmbeddingLayer
    from gpu.embedding.tokenizer_discovery import discover

    table = torch.nn.Embedding(1 << 13, 8, device=dnatok.DEVICE).requires_grad_(False)
    return EmbeddingLayer(table, discover(tokenizer), device=dnatok.DEVICE)


def _kmers(text: str, ids: dict[str, int]) -> list[int]:
    """Split into 6-mers, and the rest into letters, as Nucleotide Transformer does."""
    whole = len(text) - len(text) % KMER
    kmers = [ids[text[begin : begin + KMER]] for begin in range(0, whole, KMER)]
    return kmers + [ids[letter] for letter in text[whole:]]


def _byte_pairs(session: Session) -> Tokenizers:
    """Make DNABERT-2's tokenizers: Hugging Face's from its file, and ours by the GPU engine."""
    import torch
    from tokenizers import Tokenizer

    assert session.gpu is not None
    vocabulary, engine = load("dnabert2"), session.gpu.engine
    tokenizer = Tokenizer.from_str(tokenizer_json(vocabulary))
    pad_id = vocabulary.roles.get("pad", 0)
    engine.load(vocabulary)

    def hugging_face(texts: Texts) -> Any:
        rows = tokenizer.encode_batch_fast([*texts], add_special_tokens=False)
        return pad([row.ids for row in rows], pad_id)

    def ours(texts: Texts) -> Any:
        encoded = engine.encode(vocabulary, Batch([*texts], options=WITHOUT_FRAME))
        counts = np.diff(encoded.offsets)
        matrix = np.full((len(texts), int(counts.max())), pad_id, np.int64)
        matrix[np.arange(matrix.shape[1]) < counts[:, None]] = encoded.ids
        return torch.from_numpy(matrix).to(dnatok.DEVICE, non_blocking=True)

    return Tokenizers(len(vocabulary), {HF_RUST: hugging_face}, ours)


PARTS = (Part("scenarios", "dnatok", "Figures 10 to 13", "gpu", 35, scenario_rows),)
