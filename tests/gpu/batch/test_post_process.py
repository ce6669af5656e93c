"""Begin and end tokens, truncation, spans: the emulated device against post_processing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpu.kernels.job import constant
from gpu.vocabulary.decode_table import decode_table
from tests.support.emulation.kernels import launch, make_job
from vocabularies.batch.batch import Encoded, EncodeOptions, RowError
from vocabularies.batch.post_processing import AddedIds, Content, post_process
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

BLOCK, NO_BYTE = constant("BLOCK"), constant("NO_BYTE")
SCAN_TILE, NO_LIMIT = constant("SCAN_TILE"), constant("NO_LIMIT")
ADD, LEFT = constant("ROW_ADD_SPECIAL"), constant("ROW_TRUNCATE_LEFT")
TRUNCATED, NUM_POST_PROCESSED = constant("STATUS_TRUNCATED"), constant("STATUS_NUM_POST_PROCESSED")
LENGTHS = np.array([*range(1, 40), 3000])
VOCABULARY = Vocabulary(
    tuple(bytes((i * 7 + n) % 251 for i in range(n)) for n in LENGTHS.tolist()),
    Bpe((), byte_level=False),
)
WITH_SPANS = EncodeOptions(spans=True)
REFUSED = RowError("not_utf8", "")


@dataclass
class Row:
    """A row's own ids and its options; `fault` is the field that reports a fault, if any."""

    ids: Sequence[int]
    options: EncodeOptions = WITH_SPANS
    fault: str = ""


def added_ids(num_prefix: int, num_suffix: int) -> AddedIds:
    return AddedIds(
        np.arange(100, 100 + num_prefix, dtype=np.int32),
        np.arange(200, 200 + num_suffix, dtype=np.int32),
    )


def run(rows: Sequence[Row], around: AddedIds, blocks: int) -> tuple[dict[str, NDArray], NDArray]:
    """The arrays of the answer, and the status words."""
    offsets = np.cumsum([0, *(len(row.ids) for row in rows)]).astype(np.int64)
    most = int(offsets[-1]) + len(rows) * len(around)
    limits = [row.options.max_length for row in rows]
    flags = [
        ADD * row.options.add_special_tokens + LEFT * (row.options.truncation_side == "left")
        for row in rows
    ]
    arrays = {
        "ids": np.array([i for row in rows for i in row.ids], np.int32),
        "id_offsets": offsets,
        "row_flags": np.array(flags, np.uint8),
        "row_errors": np.array([9 if row.fault == "error" else NO_BYTE for row in rows], np.uint32),
        "row_refused": np.array(
            [0 if row.fault == "token" else NO_BYTE for row in rows], np.uint32
        ),
        "status": np.zeros(8, np.uint64),
        "token_table": decode_table(VOCABULARY),
        "prefix": around.prefix,
        "suffix": around.suffix,
        "post_process_states": np.zeros(len(rows) // SCAN_TILE + 2, np.uint64),
        "span_states": np.zeros(int(offsets[-1]) // SCAN_TILE + 2, np.uint64),
        "span_begins": np.full(int(offsets[-1]) + 1, 0xEEEEEEEE, np.uint32),
        "post_processed_ids": np.full(most, -1, np.int32),
        "post_processed_offsets": np.full(len(rows) + 1, -1, np.int64),
        "num_tokens": np.full(len(rows), -1, np.int64),
        "kept": np.full((len(rows), 2), -1, np.int64),
        "spans": np.full((most, 2), -1, np.int64),
    }
    if any(limit is not None for limit in limits):
        bounds = [NO_LIMIT if limit is None else limit for limit in limits]
        arrays["row_max_length"] = np.array(bounds, np.uint32)
    if all(row.options == WITH_SPANS for row in rows):
        del arrays["row_flags"]
    numbers = {"num_rows": len(rows), "num_ids": len(VOCABULARY)}
    numbers |= {"num_prefix": len(around.prefix), "num_suffix": len(around.suffix)}
    job = make_job(**arrays, **numbers)
    for name in ("post_process_rows", "post_process_ids", "span_begins", "post_process_spans"):
        launch(name, blocks, BLOCK, job)
    return arrays, arrays["status"]


def expected(row: Row, around: AddedIds) -> Encoded:
    """One row through vocabularies.batch.post_processing."""
    ids = np.array([] if row.fault else row.ids, np.int32)
    ends = np.cumsum(LENGTHS[ids])
    spans = np.stack([ends - LENGTHS[ids], ends], axis=1).astype(np.int64)
    errors = {0: REFUSED} if row.fault else {}
    content = Content(ids, np.array([0, len(ids)], np.int64), spans, errors)
    return post_process(content, around, row.options)


def check(rows: Sequence[Row], around: AddedIds, blocks: int = 2) -> None:
    answer, status = run(rows, around, blocks)
    offsets, cut = answer["post_processed_offsets"], False
    assert offsets[0] == 0
    assert status[NUM_POST_PROCESSED] == offsets[-1]
    assert (answer["post_processed_ids"][offsets[-1] :] == -1).all()
    for number, row in enumerate(rows):
        want = expected(row, around)
        begin, end = offsets[number : number + 2].tolist()
        assert answer["post_processed_ids"][begin:end].tolist() == want.ids.tolist()
        assert want.spans is not None
        assert answer["spans"][begin:end].tolist() == want.spans.reshape(-1, 2).tolist()
        refused = bool(want.errors)
        if want.num_tokens is None or want.kept is None:
            own = 0 if refused else len(row.ids)
            assert answer["kept"][number].tolist() == [0, own]
            assert answer["num_tokens"][number] == (0 if refused else len(want.ids))
        else:
            cut = True
            assert answer["kept"][number].tolist() == want.kept[0].tolist()
            assert answer["num_tokens"][number] == want.num_tokens[0]
    assert bool(status[TRUNCATED]) == cut


def options(length: int | None, side: str = "right", add: bool = True) -> EncodeOptions:
    return EncodeOptions(
        spans=True,
        add_special_tokens=add,
        max_length=length,
        truncation_side=side,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("sides", [(0, 0), (1, 0), (0, 1), (1, 1), (3, 2)])
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1023, 2048, 4097])
def test_rows_without_a_limit(sides: tuple[int, int], length: int) -> None:
    ids = random.Random(length).choices(range(40), k=length)
    check([Row(ids), Row([]), Row([3]), Row([]), Row([]), Row(ids[:5])], added_ids(*sides))


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
def test_every_small_limit(side: str, add: bool) -> None:
    ids = list(range(10))
    limits = [None, 0, 1, 2, 3, 4, 11, 12, 13, 14, 1000]
    rows = [Row(ids[:n], options(limit, side, add)) for limit in limits for n in (0, 1, 9, 10)]
    check(rows, added_ids(2, 1))
    check(rows, added_ids(0, 0))


def test_refused_rows_have_no_ids_and_move_no_spans() -> None:
    rows = [Row([1, 2, 3], fault="error"), Row([4, 5]), Row([6] * 5000, fault="token"), Row([7, 8])]
    check(rows, added_ids(1, 1))
    check([Row(row.ids, options(3, "left"), row.fault) for row in rows], added_ids(1, 1))


def test_many_empty_rows_between_others() -> None:
    around = added_ids(0, 0)
    empty = [Row([5], fault="error"), *[Row([])] * 3000]
    check([Row([1, 2, 3]), *empty, Row([4]), Row([]), Row([5] * 2000), *empty, Row([6])], around)


def test_more_rows_than_one_tile_of_the_scan() -> None:
    source = random.Random(5)
    rows = [
        Row(source.choices(range(40), k=source.randint(0, 6)), options(source.choice((None, 2, 4))))
        for _ in range(2 * SCAN_TILE + 5)
    ]
    check(rows, added_ids(1, 0), blocks=5)
    check(rows[:SCAN_TILE], added_ids(1, 0))


OPTIONS = st.builds(
    options,
    st.one_of(st.none(), st.integers(0, 12)),
    st.sampled_from(["left", "right"]),
    st.booleans(),
)
ROWS = st.lists(
    st.builds(
        Row,
        st.lists(st.integers(0, 39), max_size=12),
        OPTIONS,
        st.sampled_from(["", "", "", "error", "token"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150)
@given(rows=ROWS, num_prefix=st.integers(0, 3), num_suffix=st.integers(0, 3))
def test_random_rows(rows: list[Row], num_prefix: int, num_suffix: int) -> None:
    check(rows, added_ids(num_prefix, num_suffix))
