from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.inputs.nasty_texts import SEQUENCES
from vocabularies.batch.batch import Batch
from vocabularies.reference.tokenizer import reverse_complement_text
from vocabularies.sequences import strand
from vocabularies.sequences.strand import COMPLEMENT, reverse_complement

ROWS = st.lists(st.binary(max_size=40) | st.text("ACGTNacgtnURY", max_size=40).map(str.encode))


def row_by_row(rows: list[bytes]) -> bytes:
    """Reverse and complement each row in plain Python, with bytes as U+0000 to U+00FF."""
    return "".join(reverse_complement_text(row.decode("latin-1")) for row in rows).encode("latin-1")


def test_pairs_are_those_of_the_iupac_codes():
    letters = b"ACGTURYKMSWBVDHN"
    assert COMPLEMENT[list(letters)].tobytes() == b"TGCAAYRMKSWVBHDN"
    assert COMPLEMENT[list(letters.lower())].tobytes() == b"tgcaayrmkswvbhdn"


def test_other_bytes_are_unchanged():
    letters = set(b"ACGTURYKMSWBVDHNacgturykmswbvdhn")
    others = [byte for byte in range(256) if byte not in letters]
    assert COMPLEMENT[others].tolist() == others


def test_two_rows_by_hand():
    batch = Batch.from_bytes([b"AACGn-u", b"", b"TT"])
    assert reverse_complement(batch.data, batch.offsets).tobytes() == b"a-nCGTT" + b"AA"


def test_a_batch_without_rows_and_rows_without_bytes():
    for rows in ([], [b""], [b"", b"", b""]):
        batch = Batch.from_bytes(rows)
        assert len(reverse_complement(batch.data, batch.offsets)) == 0


def test_the_result_is_a_new_array():
    batch = Batch.from_bytes([b"ACCT"])
    result = reverse_complement(batch.data, batch.offsets)
    result[:] = 0
    assert batch.data.tobytes() == b"ACCT"


@given(rows=ROWS)
def test_a_batch_equals_its_rows(rows):
    batch = Batch.from_bytes(rows)
    assert reverse_complement(batch.data, batch.offsets).tobytes() == row_by_row(rows)


@given(rows=ROWS, block_bytes=st.integers(1, 50))
def test_the_size_of_a_block_changes_nothing(rows, block_bytes):
    batch = Batch.from_bytes(rows)
    whole = strand.BLOCK_BYTES
    strand.BLOCK_BYTES = block_bytes
    try:
        assert reverse_complement(batch.data, batch.offsets).tobytes() == row_by_row(rows)
    finally:
        strand.BLOCK_BYTES = whole


def test_the_texts_of_sequences():
    rows = [sequence.encode() for sequence in SEQUENCES]
    batch = Batch(SEQUENCES)
    assert reverse_complement(batch.data, batch.offsets).tobytes() == row_by_row(rows)


@given(text=st.text("ACGTRYKMBVDHSWNacgtrykmbvdhswn-* "))
def test_twice_is_the_sequence_again(text):
    batch = Batch([text])
    once = reverse_complement(batch.data, batch.offsets)
    assert reverse_complement(once, batch.offsets).tobytes() == text.encode()


def test_more_than_one_real_block():
    generator = np.random.default_rng(0)
    data = generator.choice(np.frombuffer(b"ACGTN", np.uint8), 2 * strand.BLOCK_BYTES + 5)
    offsets = np.array([0, 3, strand.BLOCK_BYTES, 2 * strand.BLOCK_BYTES + 1, len(data)], np.int64)
    rows = [data[a:b].tobytes() for a, b in pairwise(offsets.tolist())]
    assert reverse_complement(data, offsets).tobytes() == row_by_row(rows)
