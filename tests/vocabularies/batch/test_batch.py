"""Batches of strings and of bytes: their parts, and whether they have so many bytes."""

from __future__ import annotations

import numpy as np
import pytest

from vocabularies.batch.batch import Batch, EncodeOptions

TEXTS = ["one", "", "zwölf", "🙂", "last"]
EACH = [EncodeOptions(max_length=n) for n in range(5)]


@pytest.mark.parametrize("options", [EncodeOptions(), EACH], ids=["shared", "each"])
@pytest.mark.parametrize("form", ["texts", "bytes"])
def test_a_part_is_the_batch_of_its_rows(form, options):
    batch = Batch(TEXTS, options=options)
    if form == "bytes":
        batch = Batch.from_bytes([text.encode() for text in TEXTS], options)
    for begin in range(6):
        for end in range(begin, 6):
            part = batch.part(begin, end)
            rows = [text.encode() for text in TEXTS[begin:end]]
            assert [part.row_bytes(row) for row in range(len(part))] == rows
            assert part.data.tobytes() == b"".join(rows)
            assert part.offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
            assert part.options == (options if options is not EACH else EACH[begin:end])
            assert part.has_texts == (form == "texts")
    assert batch.part(0, 5) is batch


@pytest.mark.parametrize("offsets", [[-1, 4], [0, 5], [5, 9], [3, 2]])
def test_rows_that_lie_outside_of_the_data_are_refused(offsets):
    with pytest.raises(ValueError, match=f"from {offsets[0]} to {offsets[1]}, not from 0 to 4"):
        Batch(data=np.zeros(4, np.uint8), offsets=np.array(offsets))


@pytest.mark.parametrize("form", ["texts", "bytes"])
def test_bytes_are_counted_and_not_characters(form):
    for texts in (TEXTS, [], ["a" * 9], ["é" * 9], ["🙂" * 9, "中"]):
        rows = [text.encode() for text in texts]
        size = sum(map(len, rows))
        for num_bytes in (*range(12), *range(max(0, size - 2), size + 3)):
            batch = Batch(texts) if form == "texts" else Batch.from_bytes(rows)
            assert batch.has_bytes(num_bytes) == (size >= num_bytes)


def test_a_batch_that_is_clearly_small_or_large_is_not_joined():
    batch = Batch(["abcd"] * 100)
    assert not batch.has_bytes(1601)
    assert batch.has_bytes(400)
    assert batch._joined is None


@pytest.mark.parametrize("letters", ["ab", "aé", "é中", "a🙂"])
@pytest.mark.parametrize(
    ("num_texts", "length"), [(0, 0), (1, 0), (300, 3), (300, 90), (70, 70_000), (3, 1 << 21)]
)
def test_joined_texts_equal_single_ones_for_any_lengths(letters, num_texts, length):
    chance = np.random.default_rng(length)
    sizes = chance.integers(0, 2 * length + 1, num_texts).tolist()
    texts = [(letters * (size // 2 + 1))[:size] for size in sizes]
    rows, batch = [text.encode() for text in texts], Batch(texts)
    assert batch.data.tobytes() == b"".join(rows)
    assert batch.offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()


def test_data_and_offsets_of_other_kinds_are_refused_or_made_such():
    data, offsets = np.frombuffer(b"a.b.c.", np.uint8)[::2], np.array([0, 1, 3], np.uint16)
    batch = Batch(data=data, offsets=offsets)  # type: ignore[arg-type]
    assert [batch.row_bytes(row) for row in range(2)] == [b"a", b"bc"]
    assert (batch.data.flags.c_contiguous, batch.offsets.dtype) == (True, np.int64)
    for wrong, places in (
        (data.astype(np.int32), offsets),
        (data.reshape(1, -1), offsets),
        (data, offsets.astype(np.float64)),
        (data, offsets.reshape(1, -1)),
    ):
        named = wrong if wrong.dtype != np.uint8 or wrong.ndim > 1 else places
        with pytest.raises(
            TypeError, match=rf"(data|offsets) is an array {named.dtype}\[{named.shape[0]}"
        ):
            Batch(data=wrong, offsets=places)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"special": "ignore"}, "special is 'ignore'; it must be one of match, plain, refuse"),
        ({"truncation_side": "middle"}, "truncation_side is 'middle'"),
        ({"max_length": -1}, "max_length is -1"),
    ],
)
def test_options_that_mean_nothing_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        EncodeOptions(**options)


def test_what_is_no_batch_is_named():
    with pytest.raises(TypeError, match="texts is a single text"):
        Batch("ACGT")
    with pytest.raises(ValueError, match="there are 1 options for 2 rows"):
        Batch(["A", "C"], options=[EncodeOptions()])
    batch = Batch(["A"], id_dtype=np.uint8)
    batch.check_id_dtype(256)
    with pytest.raises(ValueError, match="a vocabulary of 257 ids does not fit in uint8"):
        batch.check_id_dtype(257)
    with pytest.raises(ValueError, match="id_dtype is int64"):
        Batch(["A"], id_dtype=np.int64).check_id_dtype(1)


def test_buffers_of_longer_items_are_rows_of_their_bytes():
    rows = [b"ACGTACGT", b"GGGG"]
    batch = Batch.from_bytes([np.frombuffer(row, "<u4").data for row in rows])
    assert [batch.row_bytes(row) for row in range(2)] == rows


def test_a_duplicate_is_joined_on_its_own_and_no_size_joins_texts():
    batch = Batch(["größe", "a"])
    assert batch.size == 6
    same = batch.duplicate()
    assert same.data.tobytes().decode() == "größea"
    assert (same.size, batch.size) == (8, 6)
    assert batch.data is not same.data
    assert batch.duplicate().data is batch.data
    assert Batch.from_bytes([b"abc"]).size == 3
    batch.should_continue = lambda: False
    assert not batch.duplicate().should_continue()
    assert not batch.select([0], EncodeOptions()).should_continue()
