"""The sources of `discover`, and the forms of sequences: models, BPE, N, generators."""

from __future__ import annotations

import functools
import itertools
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

from gpu.embedding.discovery.embedder_fields import UnknownTokenizer
from gpu.embedding.inputs import as_batch, read_blocks
from gpu.embedding.row_layout import BeginEndTokens
from gpu.embedding.tokenizer_discovery import Discovery, discover
from service.engines.cpu.engine import CpuEngine
from tests.support.inputs.tokenizer_objects import FastTokenizer, write_tokenizer
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary
from vocabularies.reference import tokenizer as reference
from vocabularies.sequences.augmentation import Augmentation, augment
from vocabularies.sequences.strand import reverse_complement

TEXTS = ["ACGTACGTNACG", "", "GATTACA", "NNNNNNNNNNNN", "ACGT[MASK]A", "acgt"]


def rows_of(name: str, texts: list[str], with_special_tokens: bool = False) -> list[list[int]]:
    options = EncodeOptions(add_special_tokens=with_special_tokens)
    return [reference.encode(load(name), text, options).ids for text in texts]


@functools.cache
def hyenadna() -> Discovery:
    return discover(load("hyenadna"))


class Counted(CpuEngine):
    """An engine that counts the rows it encodes."""

    num_rows = 0

    def encode(self, vocabulary: Any, batch: Batch) -> Any:
        self.num_rows += len(batch)
        return super().encode(vocabulary, batch)


@pytest.mark.parametrize(
    "name", ["dnabert2", pytest.param("gena_lm_t2t_32k", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_an_engine_encodes_for_the_bpe_of_hugging_face(name: str, is_wrapped: bool) -> None:
    engine, tokenizer = Counted(), write_tokenizer(name)
    source: Any = tokenizer
    if is_wrapped:
        source = FastTokenizer(tokenizer, pad_token_id=3, padding_side="left")
        source.__dict__["encode"] = lambda text, add_special_tokens=True: tokenizer.encode(
            text, add_special_tokens=add_special_tokens
        )
        source.__dict__["get_vocab"] = tokenizer.get_vocab
    discovery = discover(source, engine=engine)
    assert discovery.reason.endswith("; the engine encodes by its tokenizer.json")
    assert discovery.padding_side == ("left" if is_wrapped else "right")
    before = engine.num_rows
    for encode, with_special_tokens in (
        (discovery.upstream, False),
        (discovery.with_special_tokens, True),
    ):
        assert encode is not None
        ids, offsets = encode(Batch(TEXTS))
        assert [row.tolist() for row in np.split(ids, offsets[1:-1])] == rows_of(
            name, TEXTS, with_special_tokens
        )
    assert engine.num_rows == before + 2 * len(TEXTS)


@pytest.mark.slow
def test_an_engine_that_cannot_be_used_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Plain:
        def encode(self, text: str) -> list[int]:
            return rows_of("hyenadna", [text])[0]

    class Wrong(CpuEngine):
        def encode(self, vocabulary: Any, batch: Batch) -> Any:
            encoded = super().encode(vocabulary, batch)
            encoded.ids[encoded.ids == 5] = 6
            return encoded

    class Refusing(CpuEngine):
        def encode(self, vocabulary: Any, batch: Batch) -> Any:
            raise RuntimeError("not covered")

    for source, engine, reason in (
        (Plain(), CpuEngine(), "a Plain has no tokenizer.json"),
        (write_tokenizer("dnabert2"), Wrong(), "the engine gives other ids for 'A"),
        (write_tokenizer("dnabert2"), Refusing(), "the engine does not encode it: not covered"),
    ):
        with caplog.at_level(logging.WARNING):
            discovery = discover(source, engine=engine)
        assert f"the engine is not used: {reason}" in discovery.reason
        assert discovery.reason.rpartition("; ")[2] in caplog.text


def make_words(**special: int) -> Tokenizer:
    """Words of 3 letters side by side, single letters behind them, in the manner of NT."""
    words = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    vocab = {word: number for number, word in enumerate([*words, *"ACGTN", "?", *special])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    return tokenizer


def test_n_begins_words_anew_where_the_tokenizer_does_so() -> None:
    tokenizer = make_words()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[ACGT]{3}|."), "isolated")
    discovery = discover(tokenizer)
    assert discovery.reason == "words of 3 letters, one every 3, and N between them"
    assert discovery.rule is not None
    for text in ("ACGTNACGTAC", "N", "NNACGN", "ACN", "TTTTTTNNNA"):
        found = discovery.rule.encode(np.frombuffer(text.encode(), np.uint8))
        assert found is not None and found.tolist() == tokenizer.encode(text).ids
    assert discovery.rule.encode(np.frombuffer(b"ACGR", np.uint8)) is None


@pytest.mark.parametrize("stride", [1, 3])
def test_n_makes_its_word_unknown_where_the_tokenizer_does_so(stride: int) -> None:
    tokenizer = make_words()

    class Plain:
        def encode(self, text: str) -> list[int]:
            words = [text[i : i + 3] for i in range(0, len(text) - 2, stride)]
            return [tokenizer.token_to_id(word) or 69 * (word != "AAA") for word in words]

    discovery = discover(Plain())
    assert discovery.reason == f"words of 3 letters, one every {stride}, and N between them"
    assert discovery.rule is not None
    for text in ("ACGTNACGTAC", "N", "NNACGN", "ACN", "TTTTTTNNNA"):
        found = discovery.rule.encode(np.frombuffer(text.encode(), np.uint8))
        assert found is not None and found.tolist() == Plain().encode(text)


@pytest.mark.slow
def test_begin_and_end_tokens_are_found_by_encoding() -> None:
    tokenizer = write_tokenizer("gpn")
    assert discover(tokenizer).begin_end_tokens == BeginEndTokens()
    pairs = [("[CLS]", 3), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP] [SEP]", special_tokens=pairs
    )
    assert discover(tokenizer).begin_end_tokens == BeginEndTokens((3,), (3, 3))

    class InPieces:
        """Puts a token before every piece of 500."""

        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            ids = rows_of("hyenadna", [text])[0]
            if not add_special_tokens:
                return ids
            pieces = [ids[i : i + 500] for i in range(0, len(ids) or 1, 500)]
            return [token_id for piece in pieces for token_id in [0, *piece]]

    discovery = discover(InPieces())
    assert discovery.use_ids_path
    assert discovery.begin_end_tokens is None
    assert discover(load("nt_v2")).begin_end_tokens == BeginEndTokens((3,))
    assert discover(load("dnabert1_3mer")).begin_end_tokens == BeginEndTokens((2,), (3,), 510)


class Model:
    """A model like those of transformers, without a tokenizer."""

    def __init__(self, name: str | None, vocab_size: int, **more: Any) -> None:
        self.config = SimpleNamespace(_name_or_path=name, vocab_size=vocab_size, **more)

    def get_input_embeddings(self) -> Any:
        raise NotImplementedError

    embed_tokens = None


@pytest.mark.parametrize(
    ("name", "vocab_size", "found"),
    [
        ("InstaDeepAI/nucleotide-transformer-v2-500m-multi-species", 4107, "nt_v2"),
        ("InstaDeepAI/nucleotide-transformer-2.5b-1000g", 4105, "nt_v1"),
        ("InstaDeepAI/NTv3_650M_pre", 11, "ntv3"),
        ("LongSafari/hyenadna-small-32k-seqlen-hf", 16, "hyenadna"),
        ("kuleshov-group/caduceus-ps_seqlen-131k_d_model-256_n_layer-16", 16, "caduceus"),
        ("arcinstitute/evo2_7b", 512, "evo_bytes"),
    ],
)
def test_a_model_is_known_by_its_name(name: str, vocab_size: int, found: str) -> None:
    discovery = discover(Model(name, vocab_size, max_position_embeddings=2050))
    assert discovery.pad_id == load(found).roles["pad"]
    assert (discovery.token_len, discovery.max_len) == (None, 2050)
    assert discovery.upstream is not None
    assert discovery.upstream(Batch(["ACGTACGTN"]))[0].tolist() == rows_of(found, ["ACGTACGTN"])[0]


def test_a_model_that_does_not_say_its_tokenizer_is_refused(tmp_path: Any) -> None:
    for model, message in (
        (Model("my/esm", 4107), r"the name 'my/esm', does not say.*load\('nt_v2'\) has as many"),
        (Model(None, 7), "a Model, whose config has no name, does not say"),
        (Model("AIRI-Institute/gena-lm-bert-base", 32000), "give discover its tokenizer"),
        (Model("zhihan1996/DNABERT-2-117M", 32), "embeds 32 ids, and dnabert2 has 4096"),
    ):
        with pytest.raises(UnknownTokenizer, match=message):
            discover(model)
    with_tokenizer = Model(None, 16)
    with_tokenizer.tokenizer = load("hyenadna")  # type: ignore[attr-defined]
    assert discover(with_tokenizer).pad_id == 4
    for name, content in write_vocabulary(load("dnabert2"), "tokenizer.json").items():
        (tmp_path / name).write_bytes(content)
    discovery = discover(Model(str(tmp_path), 4096))
    assert discovery.upstream is not None
    assert (
        discovery.upstream(Batch(["ACGTACGT"]))[0].tolist() == rows_of("dnabert2", ["ACGTACGT"])[0]
    )


def unpadded(parts: list[Any]) -> list[list[int]]:
    """The ids of all rows of parts that are padded on the left."""
    return [
        ids[len(ids) - count :].tolist()
        for part in parts
        for ids, count in zip(part.ids, part.counts, strict=True)
    ]


@pytest.mark.torch
def test_generators_are_read_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_or_skip()
    from gpu.embedding import inputs
    from gpu.embedding.layer import EmbeddingLayer
    from gpu.embedding.upstream_tokenizer import SequenceRefused

    monkeypatch.setattr(inputs, "BLOCK_ROWS", 4)
    texts = [*["ACGTN" * (i % 5) for i in range(11)], "G"]
    num_read = 0

    def read(rows: list[Any]) -> Any:
        nonlocal num_read
        for row in rows:
            num_read += 1
            yield row

    layer = EmbeddingLayer(lambda ids: ids, hyenadna(), device="cpu", max_rows=3)
    parts = layer.embed_from_strings(read(texts))
    assert num_read == 0
    first = next(parts)
    assert (num_read, first.begin, first.end) == (4, 0, 3)
    rest = list(parts)
    assert [(part.begin, part.end) for part in rest] == [(3, 4), (4, 7), (7, 8), (8, 11), (11, 12)]
    assert unpadded([first, *rest]) == rows_of("hyenadna", texts)
    assert layer.ids_from_strings(read(texts)).shape == (12, 20)
    with pytest.raises(SequenceRefused, match="row 5: "):
        list(layer.embed_from_strings(read([b"AC"] * 5 + [b"\xff"])))
    strands = [True, False] * 6
    changed = list(layer.embed_from_strings(read(texts), reverse_complement=strands))
    expected = list(layer.embed_from_strings(texts, reverse_complement=strands))
    assert unpadded(changed) == unpadded(expected)
    with pytest.raises(ValueError, match="bool\\[13\\], but there are 12 rows"):
        list(layer.embed_from_strings(read(texts), reverse_complement=[True] * 13))


def test_blocks_of_long_rows_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu.embedding import inputs

    monkeypatch.setattr(inputs, "BLOCK_BYTES", 10)
    blocks = list(read_blocks(iter(["ACGT", "ACGTAC", "A", "C" * 30, "G"])))
    assert [len(block) for block in blocks] == [2, 2, 1]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_data_frames_are_sequences(library: str) -> None:
    module = pytest.importorskip(library)
    texts = ["ACGT", "", "NNA"]
    frame = module.DataFrame({"dna": texts, "n": [1, 2, 3]})
    assert list(as_batch(frame["dna"]).texts()[0]) == texts
    with pytest.raises(TypeError, match=r"give the column of sequences"):
        as_batch(frame)
    with pytest.raises(ValueError, match="row 1 is null"):
        as_batch(module.Series(["A", None, "C"]))
    if library == "pandas":
        assert list(as_batch(frame["dna"][1:]).texts()[0]) == texts[1:]
        assert list(as_batch(frame["dna"].astype("category")).texts()[0]) == texts
        assert list(as_batch(frame["dna"].astype("object")).texts()[0]) == texts


@pytest.mark.torch
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_rows_are_changed_before_they_are_encoded(device: str) -> None:
    torch_or_skip()
    from gpu.embedding.layer import EmbeddingLayer

    texts = ["ACGTACGTACGTNA", "GATTACA", "", "TTGCAAGCNN" * 3]
    batch = Batch(texts)
    changes = Augmentation(seed=3, crop_letters=9, substitution_rate=0.3, first_row=5)
    data, offsets = augment(batch.data, batch.offsets, changes)
    changed = [data[begin:end].tobytes() for begin, end in itertools.pairwise(offsets)]
    other = reverse_complement(data, offsets)
    others = [other[begin:end].tobytes() for begin, end in itertools.pairwise(offsets)]
    layer = EmbeddingLayer(lambda ids: ids, hyenadna(), device=device, max_rows=2)
    for strands, rows in (
        (False, changed),
        (True, others),
        (np.array([True, False, True, False]), [others[0], changed[1], others[2], changed[3]]),
    ):
        expected = layer.ids_from_strings(rows).tolist()
        made = layer.ids_from_strings(texts, augmentation=changes, reverse_complement=strands)
        assert made.tolist() == expected
        parts = list(
            layer.embed_from_strings(iter(texts), augmentation=changes, reverse_complement=strands)
        )
        assert [count for part in parts for count in part.counts] == list(map(len, rows))
    with pytest.raises(ValueError, match=r"bool\[2\], but there are 4 rows"):
        layer.ids_from_strings(texts, reverse_complement=[True, False])
