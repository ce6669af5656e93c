"""Ids as NumPy, Arrow and torch, ragged and padded."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import warptok
from tests.support.torch_or_skip import torch_or_skip

TEXTS = ["ACGTACGT", "", "GATTACA"]
ROWS = [[1, 5, 194, 6, 1049, 2], [1, 2], [1, 260, 12, 2]]


@pytest.fixture(scope="module")
def tok() -> warptok.Tokenizer:
    return warptok.load("dnabert2", device="cpu")


def test_ragged_rows(tok):
    batch = tok.encode_batch(TEXTS)
    assert batch.ids.dtype == np.int32
    assert batch.offsets.tolist() == [0, 6, 8, 12]
    assert batch.num_tokens.tolist() == [6, 2, 4]
    assert (len(batch), batch.to_list()) == (3, ROWS)
    assert batch[-1].tolist() == ROWS[2]
    with pytest.raises(IndexError):
        batch[3]
    assert (batch.engine, batch.digest) == ("cpu", tok.digest)
    assert repr(batch) == "<warptok.EncodedBatch: 3 rows, 12 ids int32, by cpu>"
    assert np.from_dlpack(batch.ids).tolist() == batch.ids.tolist()
    assert tok.encode_batch([]).to_list() == []


def test_narrow_ids(tok):
    assert tok.encode_batch(TEXTS, dtype="uint16").ids.dtype == np.uint16
    with pytest.raises(
        warptok.InvalidRequest, match="the 4096 ids of the vocabulary do not fit in uint8"
    ):
        tok.encode_batch(TEXTS, dtype="uint8")
    with pytest.raises(warptok.InvalidRequest, match="dtype is 'int64'"):
        tok.encode_batch(TEXTS, dtype="int64")


def test_tokens_and_truncation(tok):
    batch = tok.encode_batch(TEXTS, return_tokens=True, max_length=4)
    assert batch.tokens is not None
    assert batch.tokens[1] == ["[CLS]", "[SEP]"]
    assert batch.truncated == {0: (6, (0, 2))}
    assert batch.truncated[0].num_tokens == 6


def test_tokens_as_text_and_as_a_file_has_them():
    gpt2 = warptok.load("gpt2", device="cpu")
    texts = [b"Hi \xe2\x82\xac"]
    for form, tokens in (("text", ["Hi", " €"]), ("file", ["Hi", "ĠâĤ¬"])):
        batch = gpt2.encode_batch(texts, return_tokens=True, token_form=form)
        assert batch.tokens == [tokens]
    assert batch.tokens == [gpt2.convert_ids_to_tokens(batch.ids)]
    with pytest.raises(warptok.InvalidRequest, match="token_form is 'raw'"):
        gpt2.encode_batch(texts, token_form="raw")


def test_padded_rows(tok):
    batch = tok.encode_batch(TEXTS, padding="longest", return_offsets="bytes")
    assert batch.ids.tolist() == [ROWS[0], [1, 2, 3, 3, 3, 3], [1, 260, 12, 2, 3, 3]]
    assert batch.attention_mask.tolist()[2] == [1, 1, 1, 1, 0, 0]
    assert (batch.ids.dtype, batch.attention_mask.dtype) == (np.int32, np.int8)
    assert batch.offset_mapping is not None
    assert batch.offset_mapping.shape == (3, 6, 2)
    assert batch.offset_mapping[2].tolist() == [[0, 0], [0, 5], [5, 7], [0, 0], [0, 0], [0, 0]]
    assert batch.num_tokens.tolist() == [6, 2, 4]
    assert repr(batch) == "<warptok.PaddedBatch: 3 rows of 6 ids, by cpu>"
    left = tok.encode_batch(TEXTS, padding=8, padding_side="left", pad_id=0)
    assert left.ids[1].tolist() == [0, 0, 0, 0, 0, 0, 1, 2]
    assert tok.encode_batch(TEXTS).pad(8).ids.shape == (3, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": True}, 'padding is True; it must be "longest" or a number of ids'),
        ({"padding": "max_length"}, "padding is 'max_length'; it must be \"longest\""),
        ({"padding": -1}, "padding is -1; it must be at least 0"),
        ({"pad_id": 0}, "padding_side and pad_id are only allowed together with padding"),
        ({"padding": "longest", "pad_id": 4096}, r"an id of the vocabulary, 0 to 4095"),
        ({"padding": "longest", "padding_side": "up"}, "padding_side is 'up'"),
        ({"padding": "longest", "dtype": "uint16"}, "dtype must be int32 with padding"),
    ],
)
def test_wrong_padding(tok, options, message):
    with pytest.raises(warptok.InvalidRequest, match=message):
        tok.encode_batch(TEXTS, **options)


def test_a_vocabulary_without_a_padding_token():
    tok = warptok.load("gpt2", device="cpu")
    with pytest.raises(warptok.InvalidRequest, match="no padding token; give the id to pad with"):
        tok.encode_batch(["a"], padding="longest")
    tok.pad_token_id = tok.eos_token_id
    assert tok.encode_batch(["a", ""], padding="longest").ids.tolist() == [[64], [50256]]
    with pytest.raises(warptok.InvalidRequest, match="99999 is not an id of the vocabulary"):
        tok.pad_token_id = 99999


def test_arrow(tok):
    pa = pytest.importorskip("pyarrow")
    assert tok.encode_batch(TEXTS).to_arrow().to_pylist() == ROWS
    table = tok.encode_batch(TEXTS, padding="longest").to_arrow()
    assert table.schema.names == ["ids", "attention_mask"]
    assert table.column("ids").to_pylist()[1] == [1, 2, 3, 3, 3, 3]
    refused = tok.encode_batch(["A", b"\xff".decode("latin-1")], errors="keep").to_arrow()
    assert refused.null_count == 0
    kept = tok.encode_batch([b"A", b"\xff"], errors="keep").to_arrow()
    assert kept[1] == pa.scalar(None, kept.type)


def test_rows_of_arrow_are_decoded(tok):
    pa = pytest.importorskip("pyarrow")
    rows = tok.encode_batch(TEXTS).to_arrow()
    for form in (rows, pa.chunked_array([rows, rows[:1]]), rows.cast(pa.list_(pa.int64()))):
        assert tok.decode_batch(form, skip_special_tokens=True) == [*TEXTS, TEXTS[0]][: len(form)]
    with pytest.raises(warptok.InvalidRequest, match="a row of ids is null"):
        tok.decode_batch(pa.array([[5], None]))


@pytest.mark.torch
def test_torch(tok):
    torch = torch_or_skip()
    batch = tok.encode_batch(TEXTS)
    ids, offsets = batch.to_torch()
    assert (ids.dtype, offsets.dtype) == (torch.int32, torch.int64)
    assert ids.data_ptr() == batch.ids.ctypes.data  # The same memory.
    assert ids.tolist() == batch.ids.tolist()
    assert batch.to_torch("cpu").ids.tolist() == batch.ids.tolist()
    inputs = tok.encode_batch(TEXTS, padding="longest").to_torch()
    assert {name: str(tensor.dtype) for name, tensor in inputs.items()} == {
        "input_ids": "torch.int64",
        "attention_mask": "torch.int64",
    }
    assert torch.nn.Embedding(4096, 2)(inputs["input_ids"]).shape == (3, 6, 2)


@pytest.mark.parametrize(("library", "extra"), [("torch", "embedding"), ("pyarrow", "arrow")])
def test_without_a_library_it_says_what_to_install(tok, monkeypatch, library, extra):
    monkeypatch.setitem(sys.modules, library, None)
    batch = tok.encode_batch(TEXTS)
    convert = batch.to_torch if library == "torch" else batch.to_arrow
    with pytest.raises(warptok.NotInstalled, match=rf"pip install 'warptok\[{extra}\]'"):
        convert()
    assert batch.to_list() == ROWS
