"""Texts in every form that they come in give the ids of a list of them."""

from __future__ import annotations

import gzip
import io
import sys

import numpy as np
import pytest

import warptok
from tests.support.torch_or_skip import torch_or_skip

TEXTS = ["ACGT", "", "gattaca", "中文 NNA"]
ROWS = [text.encode() for text in TEXTS]
DATA = b"".join(ROWS)
OFFSETS = [0, 4, 4, 11, 21]


@pytest.fixture(scope="module")
def tok() -> warptok.Tokenizer:
    return warptok.load("hyenadna", device="cpu")


def expected(tok: warptok.Tokenizer) -> list[list[int]]:
    return [tok.encode(text) for text in TEXTS]


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        tuple(TEXTS),
        ROWS,
        [bytearray(row) for row in ROWS],
        [memoryview(row) for row in ROWS],
        np.array(TEXTS),
        np.array(TEXTS, object),
        np.array(TEXTS, np.dtypes.StringDType()),
        np.array(ROWS, object),
        dict.fromkeys(TEXTS).keys() - {""},
        (text for text in TEXTS),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_lists_and_arrays(tok, texts):
    if isinstance(texts, set):
        with pytest.raises(TypeError, match="has no order"):
            tok.encode_batch(texts)
    else:
        assert tok.encode_batch(texts).to_list() == expected(tok)


def test_bytes_with_offsets(tok):
    data = np.frombuffer(DATA, np.uint8)
    forms = (DATA, bytearray(DATA), memoryview(DATA), data)
    for values in forms:
        for offsets in (OFFSETS, np.array(OFFSETS, np.int32)):
            assert tok.encode_batch(values, offsets=offsets).to_list() == expected(tok)
    assert tok.count_batch(DATA, offsets=OFFSETS).tolist() == [len(r) for r in expected(tok)]
    with pytest.raises(TypeError, match="offsets= count bytes"):
        tok.encode_batch("ACGT", offsets=[0, 4])
    with pytest.raises(TypeError, match="give offsets="):
        tok.encode_batch(data)
    with pytest.raises(warptok.InvalidRequest, match="row 1 ends before it begins"):
        tok.encode_batch(DATA, offsets=[0, 4, 2, 21])
    with pytest.raises(warptok.InvalidRequest, match="offsets go from 0 to 99"):
        tok.encode_batch(DATA, offsets=[0, 99])


def test_matrices_of_bytes(tok):
    matrix = np.array([list(b"ACGT"), list(b"TTNN")], np.uint8)
    assert tok.encode_batch(matrix).to_list() == [tok.encode("ACGT"), tok.encode("TTNN")]


@pytest.mark.torch
def test_tensors(tok):
    torch = torch_or_skip()
    data = torch.frombuffer(bytearray(DATA), dtype=torch.uint8)
    assert tok.encode_batch(data, offsets=torch.tensor(OFFSETS)).to_list() == expected(tok)
    matrix = torch.tensor([list(b"ACGT"), list(b"TTNN")], dtype=torch.uint8)
    assert tok.encode_batch(matrix).to_list() == [tok.encode("ACGT"), tok.encode("TTNN")]
    with pytest.raises(TypeError, match="give offsets=, or a matrix"):
        tok.encode_batch(data)


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "binary", "large_binary", "string_view", "binary_view"]
)
def test_arrow_arrays(tok, kind):
    pa = pytest.importorskip("pyarrow")
    rows = TEXTS if "string" in kind else ROWS
    array = pa.array(rows, getattr(pa, kind)())
    assert tok.encode_batch(array).to_list() == expected(tok)
    assert tok.encode_batch(array[1:]).to_list() == expected(tok)[1:]
    chunked = pa.chunked_array([array[:1], array[1:]])
    assert tok.encode_batch(chunked).to_list() == expected(tok)
    with pytest.raises(warptok.InvalidRequest, match="row 1 is null"):
        tok.encode_batch(pa.array([rows[0], None], getattr(pa, kind)()))


def test_other_arrow_arrays(tok):
    pa = pytest.importorskip("pyarrow")
    dictionary = pa.array(TEXTS).dictionary_encode()
    assert tok.encode_batch(dictionary).to_list() == expected(tok)
    with pytest.raises(TypeError, match="the Arrow array has the type int64"):
        tok.encode_batch(pa.array([1]))
    with pytest.raises(TypeError, match="give the column of texts"):
        tok.encode_batch(pa.table({"text": TEXTS}))


@pytest.mark.parametrize("dtype", ["str", "object", "string[python]", "string[pyarrow]"])
def test_a_column_of_pandas(tok, dtype):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"text": pd.Series(TEXTS, dtype=dtype)})
    assert tok.encode_batch(frame["text"]).to_list() == expected(tok)
    assert tok.encode_batch(frame["text"][1:]).to_list() == expected(tok)[1:]
    with pytest.raises(warptok.InvalidRequest, match="row 1 is null"):
        tok.encode_batch(pd.Series(["A", None], dtype=dtype))
    with pytest.raises(TypeError, match="give the column of texts"):
        tok.encode_batch(frame)


def test_a_column_of_polars(tok):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"text": TEXTS, "rows": ROWS})
    for name in ("text", "rows"):
        assert tok.encode_batch(frame[name]).to_list() == expected(tok)
    with pytest.raises(warptok.InvalidRequest, match="row 1 is null"):
        tok.encode_batch(pl.Series(["A", None]))
    with pytest.raises(TypeError, match="give the column of texts"):
        tok.encode_batch(frame)


def test_no_paths_are_no_batches_and_leave_stdin_alone(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b">one\nACGT\n")))
    assert list(warptok.read_batches([])) == []
    assert list(warptok.read_batches(tmp_path.glob("*.fa"))) == []
    assert sys.stdin.buffer.read() == b">one\nACGT\n"


@pytest.mark.parametrize("paths", [b"one.fa", io.BytesIO(b">one\nACGT\n"), io.StringIO(">one")])
def test_files_are_given_by_their_paths(paths):
    with pytest.raises(TypeError, match="it must be a path, or several paths"):
        list(warptok.read_batches(paths))


def test_batches_of_a_file(tok, tmp_path):
    path = tmp_path / "genome.fa.gz"
    path.write_bytes(gzip.compress(b">one\nACGT\nAC\n>two\nNNA\n"))
    ((names, texts),) = warptok.read_batches(path)
    assert names == ["one", "two"]
    assert tok.encode_batch(texts).to_list() == [tok.encode("ACGTAC"), tok.encode("NNA")]
    assert [names for names, _ in warptok.read_batches([path, path])] == [["one", "two"]] * 2
    path.write_bytes(b">one\nAC;GT\n")
    with pytest.raises(warptok.InvalidRequest, match=r"genome\.fa\.gz"):
        list(warptok.read_batches(path))


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ("ACGT", TypeError, r"one text was given: encode\(text\), or a list"),
        (b"ACGT", TypeError, "one text was given"),
        ({"text": 1}, TypeError, "a dict has no order"),
        (5, TypeError, "a int is not a list of texts; texts are a list"),
        (["A", b"C"], TypeError, "row 1 is a bytes; all must be str, or all bytes"),
        (["A", 5], TypeError, "row 1 is a int"),
        (["A", None], warptok.InvalidRequest, "row 1 is null"),
        (["A", float("nan")], warptok.InvalidRequest, "row 1 is null"),
        (np.array([[1, 2]]), TypeError, r"an array int64\[1, 2\] does not contain texts"),
    ],
)
def test_other_values_are_refused_with_the_right_form(tok, texts, error, message):
    with pytest.raises(error, match=message):
        tok.encode_batch(texts)


def test_half_a_surrogate_pair_is_refused_or_replaced(tok):
    with pytest.raises(warptok.InvalidRequest, match=r"row 1.*surrogates=") as refused:
        tok.encode_batch(["A", "A\ud83d"])
    assert refused.value.code == "lone_surrogate"
    replaced = tok.encode("A\ud83d\ude42\ud83d", surrogates="replace")
    assert replaced == tok.encode("A🙂\ufffd")
    assert tok.encode_batch(["A", "A\ud83d"], surrogates="replace").to_list() == [
        tok.encode("A"),
        tok.encode("A\ufffd"),
    ]
