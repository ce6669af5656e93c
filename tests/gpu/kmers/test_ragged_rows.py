"""K-mers of rows of different lengths against the reference: any vocabulary, any letters."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.kernels.catalog import KERNELS
from gpu.kernels.job import constant
from gpu.windows import encode_windows
from tests.gpu.kmers.test_equal_length_rows import check, check_drawn, linear_kmers
from tests.support.each_device import DEVICES, new_engine
from tests.support.emulation.kernels import launch, make_job
from vocabularies.batch.batch import Batch
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.builtin import load
from vocabularies.reference import tokenizer

TILE = constant("KMER_TILE")
ALPHABETS = {
    "plain": "ACGT",
    "soft": "ACGT" * 100 + "acgt",
    "strange": "ACGT" * 500 + "N",
    "iupac": "ACGT" * 30 + "acgtNRYKMSWBDHVn",
}
LENGTHS = {
    "tiny": st.integers(0, 14),
    "reads": st.integers(75, 225),
    "long": st.integers(300, 2500),
    "borders": st.integers(900, 960) | st.integers(TILE - 20, TILE + 20),
    "mostly_empty": st.sampled_from([0] * 40 + [3, 200]),
}
LETTERS = 10_000

engine_of = functools.cache(new_engine)


@st.composite
def sizes_of_rows(draw) -> list[int]:
    """Lengths of one kind or of all, some 10,000 letters in up to 700 rows."""
    kind = draw(st.sampled_from([*LENGTHS, "all"]))
    lengths = st.one_of(*LENGTHS.values()) if kind == "all" else LENGTHS[kind]
    few = draw(st.lists(lengths, min_size=1, max_size=40))
    chance = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    sizes = [int(size) for size in chance.choice(few, 700)]
    rows = int(np.searchsorted(np.cumsum(sizes), LETTERS))
    return sizes[: max(1, rows)]


@settings(max_examples=100, deadline=None)
@given(st.data(), sizes_of_rows())
def test_any_rows_have_the_ids_of_the_reference(data, sizes):
    k = data.draw(st.integers(1, 8))
    stride = data.draw(st.integers(1, k) | st.just(k) | st.just(1))
    check_drawn(data, k, stride, sizes, ALPHABETS)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("letters", ALPHABETS)
@pytest.mark.parametrize(
    "name",
    ["mtdna6", "nt_v2", "dnabert1_3mer", "dnabert1_4mer", "dnabert1_5mer", "dnabert1_6mer"],
)
def test_reads_of_known_vocabularies(device, name, letters):
    chance = np.random.default_rng(len(letters))
    sizes = [int(size) for size in chance.integers(75, 226, 120)] + [1300, 0, 2, 700]
    text = "".join(chance.choice([*ALPHABETS[letters]], sum(sizes)))
    check(engine_of(device), load(name), text, sizes)


@pytest.mark.parametrize("sizes", [[9000], [75, 225, 150] * 20, [150] * 60])
@pytest.mark.parametrize("name", ["mtdna6", "nt_v2", "dnabert1_3mer", "dnabert1_6mer"])
def test_stretches_in_another_case(name, sizes):
    """Sixteen letters of a stretch are looked at once, and so are ids that are all unknown."""
    chance = np.random.default_rng(len(sizes))
    letters = chance.choice(np.frombuffer(b"ACGT", np.uint8), 9000)
    for begin, length in zip(chance.integers(0, 9000, 30), range(10, 310, 10), strict=True):
        letters[begin : begin + length] |= 0x20
    letters[chance.integers(0, 9000, 3)] = ord("n")
    check(engine_of("emulated"), load(name), letters.tobytes().decode(), sizes)


@pytest.mark.slow
def test_marks_of_another_batch_do_not_matter():
    """Marks stay where they are: those of a long row's end are of the batch before it."""
    engine, vocabulary = engine_of("emulated"), linear_kmers(3, 3, "letters")
    marked = TILE * constant("MOST_MARKS")
    for sizes in ([150, 151] * (marked // 250), [5, marked + 3 * TILE, 7]):
        check(engine, vocabulary, ("ACGTTGCA" * (sum(sizes) // 8 + 1))[: sum(sizes)], sizes)


@pytest.mark.parametrize(
    ("stride", "bits", "kernel"),
    [
        (1, 32, "write_kmers"),
        (1, 16, "write_kmers16"),
        (1, 8, "write_kmers8"),
        (3, 32, "write_strided"),
        (3, 8, "write_strided8"),
    ],
)
@pytest.mark.parametrize("shortest", [0, 1, 2])
@pytest.mark.slow
def test_each_tile_has_the_row_of_its_first_letter(stride, bits, kernel, shortest):
    """Where a batch's marks were wrong the ids would be right, and slow."""
    chance = np.random.default_rng(bits)
    sizes = chance.choice([0, 1, 150, 700, 30_000], 3000, p=[0.1, 0.1, 0.6, 0.19, 0.01])
    sizes = np.maximum(sizes, shortest)
    begins, rows = offsets_from_lengths(sizes), len(sizes)
    letters = KERNELS[kernel].bytes_a_block // (constant("BLOCK") // 32)
    tiles = -(-int(begins[-1]) // letters)
    arrays = {
        "row_begins": begins,
        "id_offsets": np.full(rows + 1, -1, np.int64),
        "status": np.zeros(8, np.uint64),
        "place_states": np.zeros(8, np.uint64),
        "row_marks": np.full(tiles, 1 << 31, np.uint32),
        "row_errors": np.zeros(rows, np.uint32),
        "row_refused": np.zeros(rows, np.uint32),
    }
    numbers = {"num_rows": rows, "num_bytes": int(begins[-1]), "id_bits": bits}
    numbers |= {"kmer_k": 3, "kmer_stride": stride}
    job = make_job(**arrays, **numbers)
    if stride == 1:
        launch("place_neighbours", 2, constant("BLOCK"), job)
        rows_are = int(arrays["status"][constant("STATUS_ROWS")])
        assert bool(rows_are & constant("ROWS_ADD_UP")) == (shortest < 2)
    launch("place_rows", 2, constant("BLOCK"), job)
    assert bool(arrays["place_states"].any()) == (stride > 1 or shortest < 2)
    wanted = np.searchsorted(begins, np.arange(tiles) * letters, "right") - 1
    assert arrays["row_marks"].tolist() == wanted.tolist()
    ids = np.where(sizes < 3, 0, (sizes - 3) // stride + 1)
    assert arrays["id_offsets"].tolist() == offsets_from_lengths(ids).tolist()
    assert arrays["status"][constant("STATUS_NUM_IDS")] == ids.sum()
    assert int(arrays["status"][constant("STATUS_ROWS")]) & constant("ROWS_ARE_RIGHT")
    assert not arrays["row_errors"].any() and not arrays["row_refused"].any()  # Nobody reads them.


@pytest.mark.parametrize(
    "lengths", [[5], [4, 5, 6], [0, 0, 0, 1, 40], [1] * 3 + [3000], [0] * 99 + [7]]
)
@pytest.mark.parametrize("rows", [1, 1024, 1025, 2500])
@pytest.mark.slow
def test_the_first_row_behind_a_place_is_found_near_or_far(lengths, rows):
    begins = offsets_from_lengths(np.random.default_rng(rows).choice(lengths, rows))
    found = np.full(int(begins[-1]) + 1, -1, np.int64)
    numbers = {"num_rows": rows, "num_bytes": int(begins[-1])}
    launch("probe_first_rows", 1, 32, make_job(row_begins=begins, id_offsets=found, **numbers))
    places = np.arange(int(begins[-1]))
    assert found[:-1].tolist() == np.searchsorted(begins[:-1], places).tolist()


@pytest.mark.parametrize("name", ["mtdna6", "nt_v2", "hyenadna"])
@pytest.mark.parametrize("sizes", [(7, 9), (9, 9)])
def test_faults_of_another_batch_do_not_matter(name, sizes):
    """They stay where they are, for plain kernels say that no row is at fault and note nothing."""
    engine, vocabulary = new_engine("emulated"), load(name)
    assert [*engine.encode(vocabulary, Batch.from_bytes([b"ACGT", b"\xffACG"])).errors] == [1]
    rows = ["ACGTTGCAT"[:size] for size in sizes]
    encoded = engine.encode(vocabulary, Batch(rows))
    assert encoded.errors == {}
    wanted = [token_id for row in rows for token_id in tokenizer.encode(vocabulary, row).ids]
    assert encoded.ids.tolist() == wanted
    made = encode_windows(engine, vocabulary, Batch(rows), window=4, stride=4, pad_id=0)
    assert made.errors == {}
