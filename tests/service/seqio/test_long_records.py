"""Long records in parts: dnaio's records, the ids and windows of the whole, flat memory."""

from __future__ import annotations

import io
from itertools import chain
from unittest import mock

import dnaio
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.service.long_fasta import genome, memory_mb, send
from service.apis.bulk import fasta_batches
from service.apis.bulk.fasta_batches import FastaBatches
from service.apis.bulk.sequence_chunks import find_splitter
from service.apis.bulk.window_writer import WindowColumns, WindowMessages
from service.batching.work import Result
from service.engines.cpu.engine import CpuEngine
from service.seqio import fasta
from service.seqio.fasta import Name, fasta_pieces
from service.seqio.reader import sequence_batches
from tests.support.server_process import server_process
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.types import Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.window_layout import WindowLayout

ENGINE = CpuEngine()
OWN = EncodeOptions(add_special_tokens=False)
LINES = st.lists(
    st.sampled_from([">", "A", "CG", "n", "\n", "\n", "\r\n", "\r", " ", "#", "\t", "\n>x y\nA"])
)
BASES = st.text(st.sampled_from("ACGTACGTACGTNNacgtRx"), max_size=120)


def records_of(content: bytes, read_size: int) -> list[tuple[str, str]]:
    file, found = io.BytesIO(content), []
    for piece in fasta_pieces(lambda _: file.read(read_size)):
        if isinstance(piece, Name):
            found.append((str(piece), ""))
        else:
            name, bases = found.pop()
            found.append((name, bases + piece.decode()))
    return found


@given(LINES, st.sampled_from([1, 2, 5, 1000]), st.sampled_from([3, 8, 1 << 18]))
@settings(max_examples=300)
def test_records_are_those_of_dnaio(parts, read_size, kept):
    content = (">" + "".join(parts)).encode()
    with dnaio.open(io.BytesIO(content), fileformat="fasta") as file:
        expected = [(record.id, "".join(record.sequence.split())) for record in file]
    with mock.patch.object(fasta, "READ_BYTES", kept):
        if any(">" in bases for _, bases in expected):
            with pytest.raises(ValueError, match="'>' inside a line"):
                records_of(content, read_size)
        else:
            assert records_of(content, read_size) == expected


@pytest.mark.parametrize("space", [" ", "\t", "\x0b", "\x1c"])
def test_a_long_comment_behind_white_space_is_left_out(space):
    with mock.patch.object(fasta, "READ_BYTES", 3):
        assert records_of(f">a\n{space}#comment\nAC\n".encode(), 2) == [("a", "AC")]


NAMES = ["Müller", "菌株1", "a\u00b5", "b2", ""]


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["utf-8", "latin-1"])), min_size=1),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([1, 4, 1000]),
)
def test_names_are_utf_8_or_else_latin_1(named, line_end, read_size):
    lines, expected = [], []
    for name, encoding in named:
        header = f">{name} größer".encode(encoding, "ignore")
        lines += [header, b"ACGT"]
        expected.append((header[1:].decode(encoding).partition(" ")[0], "ACGT"))
    content = line_end.encode().join(lines)
    assert records_of(content, read_size) == expected
    found = list(sequence_batches(io.BytesIO(content), "fasta", 10**6, 10**6))
    assert [name for names, _ in found for name in names] == [name for name, _ in expected]


SEQUENCES = st.lists(st.sampled_from(["ACGT", "N" * 9, " ", "\n", "-*.", "[MASK]", "<mask>"]))


@given(SEQUENCES, st.sampled_from([1, 4, 1000]), st.sampled_from([3, 8, 1 << 18]))
def test_special_tokens_of_long_lines_are_not_cut(parts, read_size, kept):
    sequence = "".join(parts)
    with mock.patch.object(fasta, "READ_BYTES", kept):
        expected = [("a", "".join(sequence.split()))]
        assert records_of(f">a\nA{sequence}\n".encode(), read_size) == [("a", "A" + expected[0][1])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b">a\nAC>b\nGT\n", "'>' inside a line.*record 1"),
        (b">a\nAC\n>b\n;no\nAC\n", "';'.*record 2"),
        (b">a\nAC\n+\nII\n", "'[+]'.*record 1"),
        (b">a\nAC\0GT\n", "0x00.*record 1"),
        (b">b\nG\n>a\nAC\xe9\n", "a sequence is not ASCII .record 2"),
    ],
)
@pytest.mark.parametrize("num_bases", [0, 9000])
def test_what_no_sequence_has_is_refused(content, message, num_bases):
    with pytest.raises(ValueError, match=message):
        records_of(content.replace(b"AC", b"AC" + b"T" * num_bases), 1 << 18)


@pytest.mark.parametrize(
    "content", [b">a\nAC\xc3\xa9\n", b">\xc3\xa9\nA\n\xe9", b"A\n>a\n", b">a\n\xff"]
)
def test_what_is_no_fasta_is_refused(content):
    with pytest.raises(ValueError, match=r"ASCII|before the first|codec"):
        records_of(content, 1000)


def kmer_vocabulary(model: Kmers) -> Vocabulary:
    words = len(model.letters) ** model.k
    tokens = [b"<unk>", b"A", b"C", b"G", b"T", b"N", *(b"#%d" % i for i in range(words))]
    special = (SpecialToken("<unk>", 0),)
    return Vocabulary(tuple(tokens), model, special, roles={"unk": 0})


@st.composite
def kmers(draw) -> Vocabulary:
    k = draw(st.integers(1, 4))
    frame = draw(st.sampled_from(["sequence", "run"]))
    letter_ids = tuple((letter, i) for i, letter in enumerate("ACGTN", 1))
    model = Kmers(
        k=k,
        first_id=6,
        unknown_id=0,
        stride=k if frame == "run" else draw(st.integers(1, k)),
        frame=frame,
        letter_ids=letter_ids,
        remainder=draw(st.sampled_from(["drop", "letters"])) if frame == "run" else "drop",
        case=draw(st.sampled_from(["keep", "upper"])),
        whitespace=draw(st.sampled_from(["letter", "skip", "words"])),
    )
    return kmer_vocabulary(model)


def fasta_of(records: dict[str, str]) -> bytes:
    lines = []
    for name, bases in records.items():
        lines += [f">{name}", *(bases[begin : begin + 7] for begin in range(0, len(bases), 7))]
    return "\n".join([*lines, ""]).encode()


def window_messages(window: int, stride: int) -> WindowMessages:
    return WindowMessages(
        np.int32, WindowLayout(window, stride, False, 0, (), 0), WindowColumns(), 1 << 20
    )


def windows_in_parts(vocabulary, content: bytes, window: int, stride: int, part: int):
    """Return the rows of an answer that is made in parts, and the number of batches it took."""
    splitter = find_splitter(vocabulary, OWN)
    assert splitter is not None
    messages = window_messages(window, stride)
    made, num_batches, file = bytes(messages.head()), 0, io.BytesIO(content)
    with mock.patch.object(fasta_batches, "PART_BYTES", part):
        for batch, names in FastaBatches(splitter, 1 << 20).batches(
            fasta_pieces(lambda _: file.read(50))
        ):
            encoded = ENGINE.encode(vocabulary, batch.with_options(OWN))
            result = Result(0, len(batch), encoded, 0, encoded.offsets.tolist())
            made += b"".join(messages.message(result, names))
            num_batches += 1
    table = pa.ipc.open_stream(made + messages.END).read_all()
    return [tuple(row.values()) for row in table.to_pylist()], num_batches


def windows_of_wholes(vocabulary, records: dict[str, str], window: int, stride: int):
    expected = []
    for name, bases in records.items():
        ids = ENGINE.encode(vocabulary, Batch([bases], options=OWN)).ids.tolist()
        starts = range(0, len(ids), stride)
        expected += [(name, start, ids[start : start + window], None) for start in starts]
    return expected


NAMES = ["hyenadna", "caduceus", "evo_bytes", "nt_v2", "dnabert1_6mer", "mtdna6", "ntv3"]


@given(
    st.one_of(kmers(), st.sampled_from(NAMES).map(load)),
    st.lists(BASES, min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 30),
)
@settings(max_examples=150)
def test_windows_of_parts_are_those_of_the_whole(vocabulary, texts, window, stride, part):
    records = {f"r{number}": text for number, text in enumerate(texts)}
    content = fasta_of(records)
    found, _ = windows_in_parts(vocabulary, content, window, stride, part)
    assert found == windows_of_wholes(vocabulary, records, window, stride)


@pytest.mark.parametrize("name", NAMES)
def test_long_records_are_split(name):
    vocabulary = load(name)
    text = "ACGTTGCA" * 40 + "N" * 300 + "GATTACA" * 50
    records = {"a": "ACG", "long": text, "b": "TTTTTTTT"}
    content = fasta_of(records)
    found, num_batches = windows_in_parts(vocabulary, content, 16, 5, 100)
    assert found == windows_of_wholes(vocabulary, records, 16, 5)
    assert num_batches > 6


def test_a_refusal_in_a_later_part_names_the_place_and_ends_the_record():
    vocabulary = load("hyenadna")
    text = "ACGT" * 50 + "[MASK]" + "ACGT" * 100
    splitter = find_splitter(vocabulary, OWN)
    messages = window_messages(10, 10)
    made, file = bytes(messages.head()), io.BytesIO(f">a\n{text}\n>b\nACGT\n".encode())
    options = EncodeOptions(add_special_tokens=False, special="refuse")
    with mock.patch.object(fasta_batches, "PART_BYTES", 60):
        for batch, names in FastaBatches(splitter, 1 << 20).batches(
            fasta_pieces(lambda _: file.read(50))
        ):
            encoded = ENGINE.encode(vocabulary, batch.with_options(options))
            result = Result(0, len(batch), encoded)
            made += b"".join(messages.message(result, names))
    rows = pa.ipc.open_stream(made + messages.END).read_all().to_pylist()
    refused = [row for row in rows if row["error"]]
    assert [row["name"] for row in refused] == ["a"]
    assert "byte 200" in refused[0]["error"]
    assert rows[-1]["name"] == "b"
    assert rows[-2] == refused[0]


def test_white_space_makes_no_words_of_a_record():
    vocabulary, content = load("dnabert1_3mer"), b">a\n" + b"ACGT\n" * 30 + b"AC GT\n"
    found, num_batches = windows_in_parts(vocabulary, content, 4, 4, 20)
    assert found == windows_of_wholes(vocabulary, {"a": "ACGT" * 31}, 4, 4)
    assert num_batches > 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gpt2", OWN),
        ("dnabert2", OWN),
        ("hyenadna", EncodeOptions(add_special_tokens=False, reverse_complement=True)),
        ("mtdna6", EncodeOptions(add_special_tokens=False, circular=True)),
        ("nt_v2", EncodeOptions(add_special_tokens=False, max_length=5)),
    ],
)
def test_what_needs_the_whole_stays_whole(name, options):
    assert find_splitter(load(name), options) is None


@pytest.mark.slow
def test_a_chromosome_is_not_kept_in_memory(tmp_path):
    """A record of 50 MB where no text may have more than four."""
    num_bases, query = 50_000_000, {"vocabulary": "hyenadna", "window": 512, "dtype": "uint8"}
    limits = {"WARPTOK_MAX_TEXT_BYTES": str(4 << 20), "WARPTOK_MAX_UNSENT_BYTES": str(1 << 20)}
    with server_process(tmp_path, {"WARPTOK_PRELOAD": "hyenadna", **limits}) as server:
        port, pid = int(server.url.rsplit(":", 1)[1]), server.process.pid
        before = memory_mb(pid, "VmHWM")
        answer = send(port, query, chain([b">chr\n"], genome(num_bases, num_bases)))
        assert (answer.status, answer.ends_well) == (200, True)
        assert answer.num_bytes > num_bases
        assert memory_mb(pid, "VmHWM") - before < 150  # Held whole, it takes 600.
