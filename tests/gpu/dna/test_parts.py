"""Batches of bases in one launch: their ids, and when other kernels encode them."""

from __future__ import annotations

import functools
import random
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.batch.transfer import TAKE_IN_BYTES
from gpu.dna import tables as dna_tables
from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from gpu.small import call
from gpu.streaming import encode_stream
from tests.support.each_device import new_engine
from tests.support.emulation.device import EmulatedDevice
from tests.support.gpus.card_class import need_largest_class
from tests.support.inputs.letter_bpe import merge_lists, repeats, vocabulary_of
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.types import SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.reference import tokenizer

NAMES = ("dnabert2", "gena_lm_t2t_32k")
PLAIN = EncodeOptions(add_special_tokens=False)
VIEW, LEAD = constant("VIEW"), constant("LEAD")


engine_of = functools.cache(new_engine)


@pytest.fixture
def outcomes(monkeypatch):
    """Return, for each batch, whether the kernel of parts finished it; every batch is tried."""
    need_largest_class()
    found, kernel_to_try, encode = [], call.SmallCall.kernel_to_try, call.SmallCall.encode_parts

    def tried(self, fused):
        self.resident.parts_skips = 0
        return kernel_to_try(self, fused)

    def encode_parts(self, kernel):
        found.append(encode(self, kernel))
        return found[-1]

    monkeypatch.setattr(call.SmallCall, "kernel_to_try", tried)
    monkeypatch.setattr(call.SmallCall, "encode_parts", encode_parts)
    return found


def ids_of(
    vocabulary: Vocabulary, rows: list[str], options: EncodeOptions = PLAIN
) -> list[list[int]]:
    return [tokenizer.encode(vocabulary, row, options).ids for row in rows]


def check(
    engine: GpuEngine, vocabulary: Vocabulary, rows: list[str], options: EncodeOptions = PLAIN
) -> None:
    """Check that the ids of each row are the reference's."""
    encoded = engine.encode(vocabulary, Batch(rows, options=options))
    want = ids_of(vocabulary, rows, options)
    assert encoded.ids.tolist() == [token_id for row in want for token_id in row]
    assert encoded.offsets.tolist() == np.cumsum([0, *map(len, want)]).tolist()


def bases(seed: int, length: int) -> str:
    return "".join(random.Random(seed).choices("ACGT", k=length))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_random_bases_are_one_launch(engine, outcomes, name):
    """Batches of one row, many rows and none; with more parts than blocks, and full views."""
    check(engine, load(name), [bases(1, 4 * VIEW)])
    check(engine, load(name), [bases(n, n % 40 * n) for n in range(200)])
    check(engine, load(name), ["", "A", "", "", bases(2, 5000), ""])
    for rows in (["A"], ["", ""], ["ACGT" * 64]):
        check(engine, load(name), rows)
    assert outcomes == [True] * 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_parts_begin_anywhere(engine, outcomes, name):
    """They may begin inside a token, at a row's begin, next to it, or at a gap."""
    text = bases(3, 2000)
    for offset in range(0, 80, 3):
        check(engine, load(name), [text[:offset], text[offset:700], text[700:]])
    for offset in range(250, 260):
        check(engine, load(name), [text[:offset] + "x." + text[offset:]])
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_begin_and_end_tokens_stand_around_each_row(engine, outcomes, name):
    """This includes empty rows, ends of parts, and one row of many parts."""
    rows = ["", "", "A", bases(4, 255), "", "C", *(bases(n, 40 + n) for n in range(90)), "", ""]
    for own in (rows, [bases(5, 3 * VIEW)], [""], ["x" * 300, "ACGT" * 64, "G"]):
        check(engine, load(name), own, EncodeOptions())
        check(engine, vocabulary_of("ACGT", [("A", "C"), ("G", "T")]), own, EncodeOptions())
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_gaps_and_short_runs_are_no_matter(engine, outcomes, name):
    """Gaps are letters without tokens and dropped white space; the runs end inside a view."""
    chance = random.Random(4)
    text = [*bases(5, 9000)]
    for place in chance.sample(range(len(text)), 500):
        text[place] = chance.choice("acgtRYx.")
    check(engine, load(name), ["".join(text), "x" * 700 + "ACG", "ACG" + "x" * 150 + "T"])
    runs = "A" * 40 + bases(6, 4000) + "CA" * 30 + bases(7, 4000) + "T" * 50 + "ACG" * 9
    check(engine, load(name), [runs, bases(8, 700) + "TTAGGG" * 30])
    check(engine, load("dnabert2"), ["ACG TA\nCC\tG " * 90, " \n ", "N" * 3000 + "GATTACA"])
    assert all(outcomes)


LEFT = ("ACGT" * 9 + "[MASK]" + "ACGT", "ACGTÉACGT", "ACGT\x7fACGT")
LEFT += ("G" + "A" * 9000, "G" + "CA" * 4500)


@pytest.mark.parametrize("row", LEFT)
def test_rows_that_fall_back_have_the_same_ids(engine, outcomes, row):
    """Rows with special tokens, letters beyond ASCII, and runs that end outside of a view."""
    check(engine, load("dnabert2"), [bases(9, 3000), row, "ACG"])
    assert outcomes == [False]


def test_blanks_and_hyphens_fall_back(engine, outcomes):
    """GENA-LM strips blanks; a hyphen is special."""
    for row in (" ACGT", "AC-GT"):
        check(engine, load("gena_lm_t2t_32k"), [row])
    assert outcomes == [False] * 2


def test_batches_after_a_fallback_skip_the_kernel():
    """Fifteen batches skip it; the next one tries it again."""
    need_largest_class()
    engine, vocabulary = engine_of("emulated"), load("dnabert2")
    with engine.resources.residents.using(vocabulary) as resident:
        resident.parts_skips = 0
        check(engine, vocabulary, [bases(9, 3000) + "A" * 9000])
        assert resident.parts_skips == call.PARTS_SKIPS
        for left in range(call.PARTS_SKIPS, 0, -1):
            check(engine, vocabulary, ["ACGTACCA"])
            assert resident.parts_skips == left - 1
        check(engine, vocabulary, ["ACGTACCA"])
        assert resident.parts_skips == 0


def test_pinned_text_is_read_where_it_lies(outcomes, monkeypatch):
    """Text of any length: the kernel computes while the text is being copied."""
    engine, vocabulary = engine_of("emulated"), load("dnabert2")
    data, places = engine.device.allocate_pinned(TAKE_IN_BYTES + 1), []
    data[:] = np.frombuffer(bases(1, len(data)).encode(), np.uint8)
    stage_text = call.SmallCall.stage_text

    def staged(self, fused):
        stage_text(self, fused)
        places.append(self.text.address)

    monkeypatch.setattr(call.SmallCall, "stage_text", staged)
    offsets = np.array([0, len(data)], np.int64)
    pinned, other = (
        engine.encode(vocabulary, Batch(data=text, offsets=offsets, options=PLAIN)).ids.tolist()
        for text in (data, data.copy())
    )
    assert pinned == other and places[0] == data.ctypes.data and outcomes == [True] * 2
    engine.device.free_pinned(data)


def test_parts_whose_paths_do_not_meet_fall_back(outcomes, monkeypatch):
    """In these tables each last token has eight letters; only one path leads to the text's end."""
    real = dna_tables.endings_of

    def eight_letters(*args):
        endings = real(*args)
        endings.last[:] = 0, 8 << 16
        return endings

    class Left(Exception):
        pass

    def launch_single_kernels(self):
        raise Left

    monkeypatch.setattr(dna_tables, "endings_of", eight_letters)
    monkeypatch.setattr(call.SmallCall, "launch_single_kernels", launch_single_kernels)
    engine = GpuEngine(EmulatedDevice(1 << 33), 1 << 30)
    for length, meets in ((1096, True), (1100, False)):
        with nullcontext() if meets else pytest.raises(Left):
            engine.encode(load("dnabert2"), Batch([bases(1, length)], options=PLAIN))
    assert outcomes == [True, False]


@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
def test_narrow_ids_on_the_device(outcomes, dtype):
    """A stream writes ids that stay on the device directly to the caller's memory."""
    engine, rows = engine_of("emulated"), [bases(n, 3000) for n in range(5)]
    batch = Batch(rows)
    address = engine.device.allocate(batch.data.nbytes * 4)

    class OutputBuffer:
        def __init__(self):
            data, kind = (address, False), np.dtype(dtype).str
            size = (len(batch.data),)
            shown = {"shape": size, "typestr": kind, "data": data, "version": 3}
            self.__cuda_array_interface__ = shown

    ends = encode_stream(engine, load("dnabert2"), batch.data, batch.offsets, OutputBuffer())
    got = np.empty(int(ends[-1]), dtype)
    engine.device.stream().copy_out(got.ctypes.data, address, got.nbytes)
    engine.device.free(address)
    assert got.tolist() == [i for row in ids_of(load("dnabert2"), rows) for i in row]
    assert outcomes == [True]


def test_long_tokens_are_told_apart(engine, outcomes):
    """This includes tokens of 33 to 64 letters, at both ends of a row and of a view."""
    unit, sizes = "A" + bases(10, 90).replace("A", "")[:63], (9, 31, 32, 33, 62)
    merges = [(unit[:i], unit[i]) for i in range(1, 64)]
    merges += [(first, unit[:n]) for first in "GC" for n in sizes]
    vocabulary = vocabulary_of("ACGT", merges)
    whole = ids_of(vocabulary, [unit, "G" + unit[:62], "C" + unit[:62]])
    assert [len(row) for row in whole] == [1, 1, 1]
    rows = [unit[first:last] + "T" for first in (0, 1, 31) for last in (40, 63, 64)]
    rows += [first + unit[:n] + last for first in "GC" for n in sizes for last in ("", "T", "A")]
    rows = [part for row in rows for part in (row, "T" * 700)]  # Else most places are listed.
    check(engine, vocabulary, [*rows, "".join(rows)])
    assert outcomes == [True]


@pytest.mark.slow
def test_the_hash_table_has_every_long_token():
    """Each token is there once, with a unique tag."""
    for name in NAMES:
        tables = dna_tables.dna_tables(load(name))
        assert tables.parts is not None
        bases_only = [t for t in load(name).tokens if t and set(t) <= set(tables.letters.bases)]
        tags = tables.parts.ids[tables.parts.ids[:, 1] > 0, 0].tolist()
        assert len(set(tags)) == len(tags) == sum(len(token) > tables.k for token in bases_only)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Vocabulary, list[str]]:
    letters = draw(st.sampled_from(["AC", "ACG", "ACGT", "ACGTN"]))
    vocabulary = vocabulary_of(
        letters,
        draw(merge_lists(letters)),
        pretokenizer=draw(st.sampled_from(["none", "whitespace_split", "isolate:-"])),
        normalizers=draw(st.sampled_from([(), (Normalizer("strip"),)])),
    )
    chance = st.integers(0, 1 << 30).map(
        lambda seed: "".join(random.Random(seed).choices(letters, k=seed % 3000))
    )
    text = repeats(letters) | chance | st.text(letters * 4 + "xN- \n", max_size=300)
    return vocabulary, draw(st.lists(text, max_size=4))


@settings(max_examples=80, deadline=None)
@given(cases(), st.booleans())
def test_any_vocabulary_and_text_has_the_ids_of_the_reference(case, adds):
    vocabulary, texts = case
    engine = engine_of("emulated")
    try:
        check(engine, vocabulary, texts, EncodeOptions(add_special_tokens=adds))
    except NotCovered:
        assume(False)
    finally:
        engine.unload(vocabulary.digest)


def kernel_of(vocabulary: Vocabulary) -> str:
    return dna_tables.prepare_dna(vocabulary).family.parts


@pytest.mark.slow
def test_which_kernel_is_tried():
    """No kernel is tried where bases may be a special token or letters are replaced."""
    vocabulary = vocabulary_of("ACGT", [("A", "C"), ("G", "T")])
    assert kernel_of(load(NAMES[0])) == kernel_of(vocabulary) == "encode_dna_parts_copied"
    assert kernel_of(load(NAMES[1])) == "encode_dna_parts"
    token = len(vocabulary.tokens)
    with_bases = replace(
        vocabulary,
        tokens=(*vocabulary.tokens, b"GGG"),
        special_tokens=(*vocabulary.special_tokens, SpecialToken("GGG", token)),
    )
    assert kernel_of(with_bases) == ""
    assert kernel_of(replace(vocabulary, normalizers=(Normalizer("lowercase"),))) == ""
