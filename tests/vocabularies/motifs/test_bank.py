"""Banks of motifs, their files, and their spans in a corpus."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabularies.batch.batch import Batch
from vocabularies.errors import VocabularyError
from vocabularies.motifs import bank as motifs_module
from vocabularies.motifs.bank import Motif, MotifBank, Spans, choose_spans, find_spans, seed_spans
from vocabularies.motifs.files import read_confidence, read_motifs

BANKS = st.lists(st.text("ACGT", min_size=2, max_size=5), min_size=1, max_size=8)
ROWS = st.lists(st.text("ACGTUN", max_size=30), max_size=6)


def spans_of(bank: MotifBank, rows: list[str]) -> Spans:
    batch = Batch.from_bytes([row.encode() for row in rows])
    return find_spans(bank, batch.data, batch.offsets)


def pairs(spans: Spans) -> list[tuple[int, int]]:
    return list(zip(spans.begins.tolist(), spans.ends.tolist(), strict=True))


def every_occurrence(bank: MotifBank, rows: list[str]) -> list[tuple[int, int, int]]:
    """Find all occurrences by definition: each motif at each place of each row."""
    found, begin = [], 0
    for row in rows:
        for i, motif in enumerate(bank.sequences):
            for place in range(len(row)):
                if row.replace("U", "T").startswith(motif, place):
                    found.append((begin + place, begin + place + len(motif), i))
        begin += len(row)
    return sorted(found, key=lambda span: (span[0], -span[1]))


def leftmost_longest(row: str, sequences: tuple[str, ...]) -> list[tuple[int, int]]:
    chosen, place = [], 0
    while place < len(row):
        lengths = [len(motif) for motif in sequences if row.startswith(motif, place)]
        if lengths:
            chosen.append((place, place + max(lengths)))
        place += max(lengths, default=1)
    return chosen


def test_overlapping_nested_and_across_sequences():
    bank = MotifBank.of(["ACG", "CG", "GAC"])
    spans = spans_of(bank, ["TACGACGA", "CG"])
    assert pairs(spans) == [(1, 4), (2, 4), (3, 6), (4, 7), (5, 7), (8, 10)]
    assert [bank.sequences[i] for i in spans.motifs] == ["ACG", "CG", "GAC", "ACG", "CG", "CG"]
    assert pairs(choose_spans(spans)) == [(1, 4), (4, 7), (8, 10)]


@given(BANKS, ROWS, st.integers(1, 7))
def test_spans_equal_the_definition_for_any_chunks(sequences, rows, chunk_bytes):
    bank = MotifBank.of(sequences)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(motifs_module, "CHUNK_BYTES", chunk_bytes)
        spans = spans_of(bank, rows)
    expected = every_occurrence(bank, rows)
    assert list(
        zip(*(a.tolist() for a in (spans.begins, spans.ends, spans.motifs)), strict=True)
    ) == (expected)


@given(BANKS, st.text("ACGT", max_size=40))
def test_choice_is_leftmost_longest(sequences, row):
    bank = MotifBank.of(sequences)
    assert pairs(choose_spans(spans_of(bank, [row]))) == leftmost_longest(row, bank.sequences)


def test_no_sequences_and_no_spans():
    assert len(spans_of(MotifBank.of(["AC"]), [])) == 0
    assert len(choose_spans(Spans.none())) == 0


def test_u_and_t_are_alike_and_case_of_a_motif_does_not_matter():
    bank = MotifBank.of(["gagguag", "ACGT"])
    assert bank.sequences == ("ACGT", "GAGGTAG")
    assert pairs(spans_of(bank, ["UGAGGUAGU", "ACGU"])) == [(1, 8), (9, 13)]
    assert len(spans_of(bank, ["acgt"])) == 0


def test_seeds_are_bases_2_to_8_of_what_is_long_enough():
    batch = Batch.from_bytes([b"UGAGGUAGUAGG", b"ACGTACG", b"ACGTACGT"])
    spans = seed_spans(batch.offsets)
    assert pairs(spans) == [(1, 8), (20, 27)]
    assert batch.data[1:8].tobytes() == b"GAGGUAG"
    assert spans.motifs.tolist() == [-1, -1]
    for first, last in ((0, 8), (3, 3)):
        with pytest.raises(ValueError, match="counted from 1"):
            seed_spans(batch.offsets, first, last)


def test_spans_are_joined_in_order_and_weighted_by_confidence():
    offsets = np.array([0, 10])
    spans = seed_spans(offsets, 3, 6).joined(seed_spans(offsets, 2, 4, weight=2000))
    assert pairs(spans) == [(1, 4), (2, 6)]
    confidence = np.array([0, 1000, 500, 0, 0, 1, 0, 0, 0, 0])
    weighted = spans.weighted(confidence)
    # Means 0.5 and 501 / 4 thousandths.
    assert weighted.weights.tolist() == [1000, 125]
    assert pairs(spans.weighted(np.where(np.arange(10) == 1, 1000, 0))) == [(1, 4)]


def test_a_bank_is_sorted_and_keeps_the_highest_weight():
    bank = MotifBank((Motif("GG", "b"), Motif("AC", "first", 500), Motif("AC", "again", 2000)))
    assert [(m.sequence, m.name, m.weight) for m in bank.motifs] == [
        ("AC", "first", 2000),
        ("GG", "b", 1000),
    ]
    assert bank.digest == MotifBank((Motif("AC", weight=2000), Motif("GG"))).digest
    assert bank.digest != MotifBank.of(["AC", "GG"]).digest


def test_every_format_gives_the_same_bank():
    fasta = b">let-7 weight=2.5\nGAGG\nUAG\n\n>other\r\nacgt\r\n"
    plain = b"# a remark\nGAGGUAG\n\nACGT\n"
    table = b"let-7\t2.5\tGAGGUAG\nother\t\tACGT\n"
    items = [{"sequence": "GAGGUAG", "name": "let-7", "weight": 2.5}, "ACGT"]
    expected = MotifBank((Motif("GAGGTAG", weight=2500), Motif("ACGT")))
    assert read_motifs("m.fa", fasta).digest == expected.digest
    assert read_motifs("m.tsv", b"Name\tWeight\tSequence\n" + table).digest == expected.digest
    assert read_motifs("m.tsv", b"GAGGUAG\tlet-7\t2.5\nACGT\n").digest == expected.digest
    assert read_motifs("m.json", json.dumps(items).encode()).digest == expected.digest
    assert read_motifs("m.txt", plain).sequences == expected.sequences
    assert read_motifs("m.fa", fasta).motifs[1].name == "let-7"


@pytest.mark.parametrize(
    ("name", "data", "places"),
    [
        ("a.txt", b"ACGT\n\nACNT\nA\n", {"a.txt: line 3": "'N'", "a.txt: line 4": "1 letters"}),
        ("a.fa", b">x weight=none\nACG\n>y\nAC\n", {"a.fa: line 1": "'none' is not a number"}),
        ("b.fa", b">x\nACG\n>y\n\n", {"b.fa: line 3": "0 letters"}),
        ("a.tsv", b"ACG\tx\t0\n", {"a.tsv: line 1": "weight is 0.0"}),
        ("b.tsv", b"ACG\tx\t1\tmore\n", {"b.tsv: line 1": "4 columns"}),
        ("c.tsv", b"ACG\tx\t0.0001\n", {"c.tsv: line 1": "three decimals"}),
        ("c.tsv", b"ACG\tx\t1_0\n", {"c.tsv: line 1": "'1_0' is not a number"}),
        ("c.fa", ">x weight=\u0663\nACG\n".encode(), {"c.fa: line 1": "is not a number"}),
        ("a.json", b'["ACG",\n,]', {"a.json: line 2 column 1": "not JSON"}),
        ("b.json", b'["ACG", {"sequence": "AC", "score": 1}]', {"b.json: [1]": "score"}),
        (
            "c.json",
            b'["ACG", 5, {"sequence": "AC", "weight": true}]',
            {"c.json: [1]": "must be", "c.json: [2]": "weight"},
        ),
        ("d.json", b'{"ACG": 1}', {"d.json: line 1": "must be a list"}),
        ("e.json", b'[{"name": "a", "name": "b"}]', {"e.json: line 1": "name"}),
        ("a.gz", b"\x1f\x8b\x08", {"a.gz": "archives"}),
        ("a", b"AC\n\xff\n", {"a: line 2": "not UTF-8"}),
        ("a", b"# nothing\n", {"a": "holds no motif"}),
    ],
)
def test_faults_name_file_and_line(name, data, places):
    with pytest.raises(VocabularyError) as caught:
        read_motifs(name, data)
    found = {finding.where: finding.message for finding in caught.value.findings}
    assert found.keys() == places.keys()
    assert all(part in found[where] for where, part in places.items())


def test_a_file_of_other_columns_names_a_hundred_lines():
    with pytest.raises(VocabularyError) as caught:
        read_motifs("seeds.tsv", b"a\tb\tc\td\n" * 1000)
    assert len(caught.value.findings) == 100
    assert caught.value.findings[99].where == "seeds.tsv: line 100"


def test_an_unknown_format_and_an_empty_bank_are_refused():
    with pytest.raises(VocabularyError, match="unknown format 'xml'"):
        read_motifs("a", b"ACG", "xml")
    with pytest.raises(VocabularyError, match="at least one motif"):
        MotifBank(())


def test_confidence_of_each_base():
    offsets = np.array([0, 3, 3, 5])
    data = b"# RNAfold\n>a\n0.5 1\n0\n>b\n>c\n0.25 0.1\n"
    assert read_confidence("c", data, offsets).tolist() == [500, 1000, 0, 250, 100]
    assert read_confidence("c", data, offsets, ["a", "b", "c"]).tolist() == [500, 1000, 0, 250, 100]


@pytest.mark.parametrize(
    ("data", "where", "part"),
    [
        (b"0.5\n", "line 1", "before the first"),
        (b">a\n0.5 0.5\n>b\n1 1\n", "line 3", "2 numbers for the 3 bases of sequence 1"),
        (b">a\n0 0 0 0\n", "line 2", "more numbers than the 3"),
        (b">a\n0 0 0\n>b\n0\n", "line 4", "1 numbers for the 2"),
        (b">a\n0 0 0\n", "line 2", "there are 1 records for 2 sequences"),
        (b">a\n0 0 0\n>b\n0 0\n>c\n", "line 5", "there are more records"),
        (b">a\n0 0 2\n", "line 2", "from 0 to 1"),
        (b">a\n0 0 nan\n", "line 2", "from 0 to 1"),
        (b">a\n0 zero 0\n", "line 2", "not numbers"),
        (b">x\n0 0 0\n", "line 1", "called 'a'"),
        (b">a\n\xff\n", "line 2", "not UTF-8"),
    ],
)
def test_faults_of_confidence_name_file_and_line(data, where, part):
    with pytest.raises(VocabularyError) as caught:
        read_confidence("f.txt", data, np.array([0, 3, 5]), ["a", "b"])
    [finding] = caught.value.findings
    assert finding.where == f"f.txt: {where}"
    assert part in finding.message
