"""The contract of every engine: the reference's ids, spans and refusals, in any batch."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from tests.support.each_engine import ENGINES, MARKS, ON_GPU, TEXT, engine_of, make_engine
from tests.support.inputs.nasty_texts import SEQUENCES, TEXTS
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError, RowRefused
from vocabularies.builtin import BUILTINS, load
from vocabularies.model.tables import may_split_kmers
from vocabularies.model.types import Kmers
from vocabularies.reference import tokenizer
from vocabularies.reference.invalid_utf8 import MAX_BYTES, encode_bytes, has_all_bytes

VOCABULARIES = {"cpu": tuple(BUILTINS), "emulated": ON_GPU, "cuda": ON_GPU}
ALL_TEXTS = [*TEXTS, *SEQUENCES]
SOME_TEXTS = [text for text in ALL_TEXTS if len(text) < 80]
OPTIONS = [
    EncodeOptions(),
    EncodeOptions(spans=True),
    EncodeOptions(add_special_tokens=False),
    EncodeOptions(special="plain", spans=True),
    EncodeOptions(special="refuse"),
    EncodeOptions(max_length=0),
    EncodeOptions(max_length=2),
    EncodeOptions(max_length=5, spans=True),
    EncodeOptions(max_length=5, truncation_side="left", spans=True),
    EncodeOptions(max_length=7, add_special_tokens=False, truncation_side="left"),
    EncodeOptions(reverse_complement=True, spans=True),
    EncodeOptions(reverse_complement=True, special="refuse"),
    EncodeOptions(circular=True, spans=True),
    EncodeOptions(circular=True, reverse_complement=True, spans=True, max_length=9),
    EncodeOptions(circular=False),
    EncodeOptions(uppercase=True, spans=True),
    EncodeOptions(uppercase=True, reverse_complement=True, special="refuse", max_length=6),
]


@pytest.fixture
def engine(request):
    return engine_of(request.param)


def on_engines(names: Iterable[str]) -> pytest.MarkDecorator:
    """List every engine with each of these vocabularies that it is tested with."""
    cases = [
        pytest.param(engine, name, marks=MARKS[engine], id=f"{engine}-{name}")
        for engine in ENGINES
        for name in names
        if name in VOCABULARIES[engine]
    ]
    return pytest.mark.parametrize(("engine", "name"), cases, indirect=["engine"])


@functools.cache
def right(name: str, text: str, options: EncodeOptions) -> tokenizer.ReferenceRow | RowError:
    try:
        return tokenizer.encode(load(name), text, options)
    except RowRefused as refused:
        return refused.error


def check(
    encoded: Encoded,
    name: str,
    texts: list[str],
    options: list[EncodeOptions],
    id_dtype: type[np.integer] = np.int32,
) -> None:
    """Check that every row equals the reference's, and every array has its shape and dtype."""
    assert encoded.ids.dtype == id_dtype
    assert encoded.offsets.dtype == np.int64
    assert len(encoded.offsets) == len(texts) + 1
    assert encoded.offsets[0] == 0
    assert encoded.offsets[-1] == len(encoded.ids)
    if encoded.spans is not None:
        assert (encoded.spans.dtype, encoded.spans.shape) == (np.int64, (len(encoded.ids), 2))
    for row, (text, wanted) in enumerate(zip(texts, options, strict=True)):
        expected = right(name, text, wanted)
        where = (name, text, wanted)
        if isinstance(expected, RowError):
            assert encoded.errors[row] == expected, where
            assert not len(encoded.row(row)), where
            continue
        assert row not in encoded.errors, (where, encoded.errors)
        assert encoded.row(row).tolist() == expected.ids, where
        if wanted.spans:
            begin, end = encoded.offsets[row : row + 2]
            assert encoded.spans is not None
            assert [(a, b) for a, b in encoded.spans[begin:end].tolist()] == expected.spans, where
        if encoded.num_tokens is None:
            assert expected.num_tokens == len(expected.ids), where
        else:
            assert encoded.num_tokens[row] == expected.num_tokens, where
            assert encoded.kept is not None
            assert tuple(encoded.kept[row].tolist()) == expected.kept, where


@on_engines(BUILTINS)
def test_every_builtin_passes_its_self_test(engine, name):
    residency = engine.load(load(name))
    assert residency.engine == engine.name
    assert residency.self_test.num_different == 0, residency.self_test.first_difference
    assert residency.self_test.num_texts > 50
    assert residency.fallback_reason == ""
    assert engine.residency(load(name).digest) == residency


@on_engines(BUILTINS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_batch_has_the_ids_spans_and_refusals_of_the_reference(engine, name, options):
    texts = ALL_TEXTS if options == EncodeOptions() else SOME_TEXTS
    encoded = engine.encode(load(name), Batch(texts, options=options))
    assert (encoded.spans is not None) == options.spans or len(encoded.errors) == len(texts)
    check(encoded, name, texts, [options] * len(texts))


@on_engines(BUILTINS)
def test_a_text_alone_has_the_ids_it_has_in_a_batch(engine, name):
    for options in (EncodeOptions(), EncodeOptions(spans=True, max_length=6)):
        for text in SOME_TEXTS:
            check(
                engine.encode(load(name), Batch([text], options=options)), name, [text], [options]
            )


@on_engines(BUILTINS)
def test_mixed_options_in_one_batch_give_what_each_gives_alone(engine, name):
    texts = [text for text in SOME_TEXTS for _ in OPTIONS]
    options = [option for _ in SOME_TEXTS for option in OPTIONS]
    order = np.random.default_rng(0).permutation(len(texts))[:400]
    texts, options = [texts[i] for i in order], [options[i] for i in order]
    check(engine.encode(load(name), Batch(texts, options=options)), name, texts, options)


@on_engines(BUILTINS)
def test_bytes_are_encoded_as_the_same_text_is(engine, name):
    rows = [text.encode() for text in SOME_TEXTS]
    options = EncodeOptions(spans=True)
    encoded = engine.encode(load(name), Batch.from_bytes(rows, options))
    check(encoded, name, SOME_TEXTS, [options] * len(rows))


@on_engines(BUILTINS)
def test_bytes_that_are_not_utf8_are_refused_alone_unless_the_units_are_bytes(engine, name):
    rows = [b"ACGTACGT", b"AC\xffGTACGT", b"\xe4", b"ACGTACGT"]
    for options in (EncodeOptions(), EncodeOptions(reverse_complement=True)):
        encoded = engine.encode(load(name), Batch.from_bytes(rows, options))
        if name == "evo_bytes" and not options.reverse_complement:
            assert encoded.errors == {}
            assert encoded.row(1).tolist() == list(b"AC\xffGTACGT")
            continue
        refused = [row for row, error in encoded.errors.items() if error.code == "not_utf8"]
        assert sorted(refused) == [1, 2]
        assert encoded.errors[1].where == "byte 2"
        if name in TEXT and options.reverse_complement:
            assert encoded.errors[0].code == encoded.errors[3].code == "no_other_strand"
            continue
        assert len(encoded.errors) == 2
        assert encoded.row(0).tolist() == encoded.row(3).tolist() != []


@on_engines(BUILTINS)
def test_bytes_that_are_not_utf8_have_ids_on_request(engine, name):
    rows = [
        b"Hello there",
        b"Hello\xf0\x9f",
        b"\xff",
        b"Hello there",
        b"a" * (MAX_BYTES + 1) + b"\xff",
    ]
    options = EncodeOptions(spans=True, invalid_utf8="bytes")
    batch = Batch.from_bytes(rows, [options, options, options, EncodeOptions(spans=True), options])
    encoded = engine.encode(load(name), batch)
    counted = engine.count(load(name), batch)
    assert counted.counts.tolist() == np.diff(encoded.offsets).tolist()
    if name == "evo_bytes":
        assert encoded.errors == {}
    elif not has_all_bytes(load(name)):
        refused = [row for row, error in encoded.errors.items() if error.code == "not_utf8"]
        assert sorted(refused) == [1, 2, 4]
    else:
        assert [*encoded.errors] == [4]
        for row in (1, 2):
            tokens = encode_bytes(load(name), rows[row], options)
            begin, end = encoded.offsets[row : row + 2]
            assert encoded.spans is not None
            assert encoded.row(row).tolist() == [token.id for token in tokens]
            spans = encoded.spans[begin:end].tolist()
            assert spans == [[token.begin, token.end] for token in tokens]
        assert encoded.row(0).tolist() == encoded.row(3).tolist() != []


@on_engines(BUILTINS)
@pytest.mark.parametrize("num_rows", [2, 400])
def test_what_lies_before_the_first_row_and_behind_the_last_is_no_rows(engine, name, num_rows):
    rows = [b"ACGTACGTAA", b"CGTTGCAGTT"] * (num_rows // 2)
    around = Batch.from_bytes([b"TTT", *rows, b"GGGGGGGGG"])
    for first, last in ((1, num_rows + 1), (0, num_rows + 1), (1, num_rows + 2)):
        batch = Batch(data=around.data, offsets=around.offsets[first : last + 1])
        same = [around.row_bytes(row) for row in range(first, last)]
        expected = engine.encode(load(name), Batch.from_bytes(same))
        encoded = engine.encode(load(name), batch)
        assert encoded.ids.tolist() == expected.ids.tolist()
        assert encoded.offsets.tolist() == expected.offsets.tolist()
        counted = engine.count(load(name), batch).counts
        assert counted.tolist() == np.diff(expected.offsets).tolist()


@on_engines(BUILTINS)
def test_count_is_the_number_of_ids(engine, name):
    texts = [text for text in SOME_TEXTS for _ in OPTIONS]
    options = [option for _ in SOME_TEXTS for option in OPTIONS]
    encoded = engine.encode(load(name), Batch(texts, options=options))
    counted = engine.count(load(name), Batch(texts, options=options))
    assert counted.counts.dtype == np.int64
    assert counted.counts.tolist() == np.diff(encoded.offsets).tolist()
    assert counted.errors == encoded.errors


@on_engines(BUILTINS)
@pytest.mark.parametrize("skip", [False, True])
def test_decode_gives_the_bytes_of_the_reference(engine, name, skip):
    vocabulary = load(name)
    encoded = engine.encode(vocabulary, Batch(SOME_TEXTS))
    chance = np.random.default_rng(1)
    known = [i for i, token in enumerate(vocabulary.tokens) if token is not None]
    noise = [chance.choice(known, 9).tolist() for _ in range(40)]
    rows = [encoded.row(row).tolist() for row in range(len(SOME_TEXTS))] + noise
    ids = np.array([i for row in rows for i in row], np.int64)
    offsets = np.cumsum([0, *map(len, rows)])
    decoded = engine.decode(vocabulary, ids, offsets, skip)
    assert decoded.errors == {}
    for row, row_ids in enumerate(rows):
        begin, end = decoded.offsets[row : row + 2]
        expected = tokenizer.decode(vocabulary, row_ids, skip)
        assert decoded.data[begin:end].tobytes() == expected, row_ids


@on_engines(["gpt2", "cl100k_base", "o200k_base", "evo_bytes"])
def test_decode_is_the_inverse_of_encode(engine, name):
    encoded = engine.encode(load(name), Batch(ALL_TEXTS))
    decoded = engine.decode(load(name), encoded.ids.astype(np.int64), encoded.offsets, False)
    texts = [
        decoded.data[begin:end].tobytes().decode()
        for begin, end in zip(decoded.offsets[:-1], decoded.offsets[1:], strict=True)
    ]
    assert texts == ALL_TEXTS


@on_engines(["gpt2", "nt_v2", "evo_bytes"])
def test_ids_are_never_narrower_than_the_vocabulary(engine, name):
    batch = Batch(["ACGTACGT"], id_dtype=np.uint8)
    with pytest.raises(
        ValueError, match=f"a vocabulary of {len(load(name))} ids does not fit in uint8"
    ):
        engine.encode(load(name), batch)
    assert "device_error" not in engine.status().fallbacks  # The GPU has not failed.


@on_engines(["gpt2", "nt_v2"])
def test_a_limit_may_be_a_number_of_numpys(engine, name):
    rows = [
        engine.encode(load(name), Batch(["ACGTACGTACG"], options=EncodeOptions(max_length=limit)))
        for limit in (2, np.int64(2), np.uint8(2))
    ]
    assert [row.ids.tolist() for row in rows] == [rows[0].ids.tolist()] * 3


@on_engines(BUILTINS)
def test_ids_outside_the_vocabulary_are_refused_by_row_and_place(engine, name):
    size = len(load(name))
    rows = [[0, 1], [0, 1, size], [-1], [], [1, -(2**62), 2**62], [1]]
    ids = np.array([i for row in rows for i in row], np.int64)
    decoded = engine.decode(load(name), ids, np.cumsum([0, *map(len, rows)]), False)
    assert {row: (e.code, e.where) for row, e in decoded.errors.items()} == {
        1: ("id_out_of_range", "ids[2]"),
        2: ("id_out_of_range", "ids[0]"),
        4: ("id_out_of_range", "ids[1]"),
    }
    sizes = np.diff(decoded.offsets)
    assert sizes[[1, 2, 3, 4]].tolist() == [0, 0, 0, 0]
    with pytest.raises(RowRefused) as refused:
        tokenizer.decode(load(name), rows[1])
    assert decoded.errors[1] == refused.value.error


@on_engines(BUILTINS)
def test_an_empty_batch_gives_empty_arrays(engine, name):
    encoded = engine.encode(load(name), Batch([]))
    assert (len(encoded.ids), encoded.offsets.tolist(), encoded.errors) == (0, [0], {})
    assert engine.count(load(name), Batch([])).counts.tolist() == []
    nothing = engine.decode(load(name), np.zeros(0, np.int64), np.zeros(1, np.int64), True)
    assert (len(nothing.data), nothing.offsets.tolist()) == (0, [0])


@on_engines(BUILTINS)
def test_results_belong_to_the_caller(engine, name):
    options = EncodeOptions(spans=True)
    batch = Batch(["ACGTACGTAA", "hello"], options=options)
    first = engine.encode(load(name), batch)
    kept = first.ids.copy(), first.offsets.copy(), first.spans.copy()
    second = engine.encode(load(name), batch)
    for array in (first.ids, first.offsets, first.spans):
        array[...] = 0
    again = engine.encode(load(name), batch)
    for result in (second, again):
        for array, expected in zip((result.ids, result.offsets, result.spans), kept, strict=True):
            assert array.tolist() == expected.tolist()
    assert (batch.data == np.frombuffer(b"ACGTACGTAAhello", np.uint8)).all()
    assert batch.offsets.tolist() == [0, 10, 15]


@on_engines(["gpt2", "dnabert2", "gena_lm_t2t_32k", "nt_v2", "dnabert1_6mer"])
@pytest.mark.slow
def test_threads_get_the_ids_that_one_caller_gets(engine, name):
    modes = [EncodeOptions(special=mode) for mode in ("match", "plain")]
    expected = [engine.encode(load(name), Batch(SOME_TEXTS, options=o)).ids.tolist() for o in modes]

    def encode(i: int) -> bool:
        if i in (5, 30):  # Under the others.
            engine.unload(load(name).digest)
        got = engine.encode(load(name), Batch(SOME_TEXTS, options=modes[i % 2]))
        return got.ids.tolist() == expected[i % 2]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(encode, range(60 if engine.name == "cpu" else 12)))
    engine.load(load(name))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("cpu", "nt_v2"),
        pytest.param("emulated", "gpt2", marks=MARKS["emulated"]),
        pytest.param("cuda", "gpt2", marks=MARKS["cuda"]),
    ],
)
def test_a_vocabulary_is_loaded_once_by_many_threads_and_forgotten_when_unloaded(kind, name):
    engine, vocabulary = make_engine(kind), load(name)
    with ThreadPoolExecutor(8) as pool:
        residencies = list(pool.map(engine.load, [vocabulary] * 16))
    assert all(residency is residencies[0] for residency in residencies)
    engine.unload(vocabulary.digest)
    assert engine.residency(vocabulary.digest) is None
    engine.unload(vocabulary.digest)
    assert len(engine.encode(vocabulary, Batch(["ACGTACGT"])).ids) == 4
    assert engine.residency(vocabulary.digest) is not None
    engine.close()
    assert engine.residency(vocabulary.digest) is None


@on_engines(ON_GPU)
def test_what_the_kernels_can_do_they_do(engine, name):
    engine.load(load(name))
    texts = [text for text in SOME_TEXTS if not may_split_kmers(load(name), text)]
    for options in OPTIONS:
        if options.reverse_complement or options.circular is not None:
            continue
        assert engine.encode(load(name), Batch(texts, options=options)).engine == engine.name
        assert engine.count(load(name), Batch(texts, options=options)).engine == engine.name
    encoded = engine.encode(load(name), Batch(texts))
    ids = encoded.ids.astype(np.int64)
    assert engine.decode(load(name), ids, encoded.offsets, True).engine == engine.name
    # Vocabularies that are unloaded under a test, and options that the kernels do not know.
    of_gpu = {reason for reason in engine.status().fallbacks if not reason.startswith("dna_")}
    assert of_gpu <= {"not_resident", "option"}


APART = [
    "ACG-TACGTAC",
    "A-CGTA ACGT[C",
    "*" * 9,
    "ACGTA[SEP]ACG",
    "[MASK] A\u00c7GTCA",
    "AC\0GTACGT",
]


@on_engines([f"dnabert1_{k}mer" for k in (3, 4, 5, 6)])
def test_kmers_that_bert_takes_apart_have_the_references_ids(engine, name):
    """The GPU leaves them to the CPU engine, and says so."""
    before = engine.status().fallbacks.get("option", 0)
    for options in OPTIONS:
        for texts in ([text] for text in APART), [[*APART, "ACGTTGCA" * 80, "", "ACGTAC-" * 200]]:
            for rows in texts:
                encoded = engine.encode(load(name), Batch(rows, options=options))
                check(encoded, name, rows, [options] * len(rows))
                assert encoded.engine == "cpu"
    assert engine.name == "cpu" or engine.status().fallbacks["option"] > before
    many = [unit * 4 for unit in ("ACG-TTAGC", "AC.GT")]
    counted = engine.count(load(name), Batch(many))
    assert counted.counts.tolist() == [len(right(name, text, OPTIONS[0]).ids) for text in many]


@on_engines([name for name in BUILTINS if isinstance(load(name).model, Kmers)])
@pytest.mark.slow
def test_long_rows_of_kmers_and_pieces_are_framed_as_the_reference_says(engine, name):
    chance = np.random.default_rng(2)
    sizes = (509, 510, 511, 514, 515, 1025, 2000, 40_000)
    texts = ["".join(chance.choice([*"ACGTN"], size, p=[0.249] * 4 + [0.004])) for size in sizes]
    texts += [text.replace("N", "A") for text in texts[:-1]]
    for options in (
        EncodeOptions(spans=True),
        EncodeOptions(max_length=515),
        EncodeOptions(max_length=516, truncation_side="left", spans=True),
        EncodeOptions(max_length=1024),
    ):
        every = [options] * len(texts)
        check(engine.encode(load(name), Batch(texts, options=options)), name, texts, every)


@on_engines(["gpt2"])
def test_one_bad_row_does_not_refuse_its_neighbours(engine, name):
    options = EncodeOptions(special="refuse")
    texts = ["one", "two <|endoftext|>", "three"]
    encoded = engine.encode(load("gpt2"), Batch(texts, options=options))
    assert list(encoded.errors) == [1]
    assert encoded.errors[1].code == "special_token_refused"
    assert encoded.errors[1].where == "byte 4"
    alone = engine.encode(load("gpt2"), Batch(["three"], options=replace(options)))
    assert encoded.row(2).tolist() == alone.ids.tolist()
