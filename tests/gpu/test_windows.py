"""Windows and augmented rows on the GPU engine, against their definitions in NumPy."""

from __future__ import annotations

import functools
import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.augmented import encode_augmented
from gpu.errors import NotCovered
from gpu.windows import encode_windows
from tests.support.each_device import new_engine
from tests.support.emulation.device import EmulatedDevice
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch, EncodeOptions, RowRefused
from vocabularies.builtin import load
from vocabularies.model.tables import may_split_kmers
from vocabularies.reference import tokenizer
from vocabularies.sequences.augmentation import Augmentation, augment
from vocabularies.sequences.windows import make_windows, token_positions

PAD = 0


engine_of = functools.cache(new_engine)


def check_windows(engine, name, texts, options, window, stride, prefix, channel) -> None:
    """Each row's windows are those of the reference's ids and places."""
    vocabulary = load(name)
    layout = {"window": window, "stride": stride, "pad_id": PAD, "prefix": prefix}
    if any(may_split_kmers(vocabulary, text) for text in texts):
        with pytest.raises(NotCovered, match="splits k-mers"):
            encode_windows(engine, vocabulary, Batch(texts, options=options), **layout)
        texts = [text for text in texts if not may_split_kmers(vocabulary, text)]
    batch = Batch(texts, options=options)
    values = np.arange(len(batch.data), dtype=np.float32) if channel else None
    made = encode_windows(engine, vocabulary, batch, channel=values, **layout)
    got = made.to_host()
    assert made.input_ids.shape == (int(made.rows[-1]), len(prefix) + window)
    for row, text in enumerate(texts):
        part = slice(made.rows[row], made.rows[row + 1])
        plain = EncodeOptions(
            add_special_tokens=False,
            reverse_complement=options.reverse_complement,
            circular=options.circular,
            spans=True,
        )
        try:
            right = tokenizer.encode(vocabulary, text, plain)
        except RowRefused as refused:
            assert made.errors[row] == refused.error
            assert part.start == part.stop
            continue
        places = token_positions(
            np.array(right.spans, np.int64).reshape(-1, 2),
            circular=bool(options.circular),
            reverse_complement=options.reverse_complement,
        )
        begin, end = batch.offsets[row : row + 2]
        wanted = make_windows(
            np.array(right.ids, np.int32),
            places,
            circular=bool(options.circular),
            channel=None if values is None else values[begin:end],
            **layout,
        )
        assert got.input_ids[part].tolist() == wanted.input_ids.tolist()
        assert got.attention_mask[part].tolist() == wanted.attention_mask.tolist()
        assert got.position_ids[part].tolist() == wanted.position_ids.tolist()
        assert got.starts[part].tolist() == wanted.starts.tolist()
        if channel:
            assert got.channel[part].tolist() == wanted.channel.tolist()
    assert (got.input_ids.dtype, got.attention_mask.dtype) == (np.int32, np.int8)
    assert (got.position_ids.dtype, got.starts.dtype) == (np.int64, np.int64)


TEXTS = st.lists(st.text("ACGT", max_size=40) | st.text("ACGTNn[é ", max_size=25), max_size=4)


@settings(max_examples=120)
@given(
    st.sampled_from(["mtdna6", "nt_v2", "caduceus", "dnabert1_3mer"]),
    TEXTS,
    st.builds(
        EncodeOptions, reverse_complement=st.booleans(), circular=st.sampled_from([None, True])
    ),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([(), (1,), (1, 2, 3)]),
    st.booleans(),
)
def test_any_windows_are_those_of_the_definition(
    name, texts, options, window, stride, prefix, channel
):
    engine = engine_of("emulated")
    check_windows(engine, name, texts, options, window, stride, prefix, channel)


@pytest.mark.parametrize("circular", [False, True])
def test_a_mitochondrial_genome_has_65_windows(engine, circular):
    text = "".join(np.random.default_rng(1).choice([*"ACGT"], 16_569))
    options = EncodeOptions(circular=circular or None)
    check_windows(engine, "mtdna6", [text, text[:700]], options, 512, 256, (), True)
    made = encode_windows(
        engine, load("mtdna6"), Batch([text], options=options), window=512, stride=256, pad_id=PAD
    )
    assert made.input_ids.shape == (65, 512)
    interface = made.position_ids.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"]) == ((65, 512), "<i8")


@pytest.mark.torch
def test_other_libraries_take_windows_without_a_copy(engine):
    torch = torch_or_skip()
    layout = {"window": 4, "stride": 3, "pad_id": PAD, "channel": np.arange(10)}
    made = encode_windows(engine, load("mtdna6"), Batch(["ACGTACGTAC"]), **layout)
    wanted = made.to_host()
    fields = "input_ids", "attention_mask", "position_ids", "channel", "starts"
    taken = {name: torch.from_dlpack(getattr(made, name)) for name in fields}
    for name, tensor in taken.items():
        assert tensor.data_ptr() == getattr(made, name).address
        assert tensor.cpu().tolist() == getattr(wanted, name).tolist()
    named = {"input_ids", "attention_mask", "position_ids", "het_values"}
    assert made.fields("het_values").keys() == wanted.fields("het_values").keys() == named
    assert made.fields("het_values")["het_values"] is made.channel
    kind = "cpu" if isinstance(engine.device, EmulatedDevice) else "cuda"
    assert {tensor.device.type for tensor in taken.values()} == {kind}


@pytest.mark.torch
def test_memory_of_windows_is_there_as_long_as_any_tensor_of_it(engine):
    torch, layout = torch_or_skip(), {"window": 4, "stride": 3, "pad_id": PAD}
    made = encode_windows(engine, load("mtdna6"), Batch(["ACGTACGTAC"]), **layout)
    block = weakref.ref(made.input_ids.owner)
    tensor = torch.from_dlpack(made.starts)
    del made
    gc.collect()
    assert block() is not None
    assert tensor.tolist() == [0, 3]
    del tensor
    gc.collect()
    assert block() is None


@pytest.mark.parametrize("kind", [list, np.float64, np.float16, np.int64])
def test_a_channel_of_other_numbers_is_made_float32(engine, kind):
    values = list(range(10)) if kind is list else np.arange(10).astype(kind)
    layout = {"window": 4, "stride": 4, "pad_id": PAD}
    batch = Batch(["ACGTACGTAC"])
    made = encode_windows(engine, load("mtdna6"), batch, channel=values, **layout).to_host()
    assert made.channel.tolist() == [[0, 1, 2, 3], [4, 0, 0, 0]]


def test_what_cannot_be_cut_is_refused(engine):
    batch = Batch(["ACGTACGT"])
    layout = {"window": 4, "stride": 2, "pad_id": PAD}
    for wrong, why in (
        ({"window": 0}, "window"),
        ({"stride": 0}, "stride"),
        ({"stride": 1 << 64}, "stride"),
        ({"pad_id": -100}, "-100 is not an id"),
        ({"pad_id": 1 << 31}, "2147483648 is not an id"),
        ({"prefix": [1, -1]}, "-1 is not an id"),
    ):
        with pytest.raises(ValueError, match=why):
            encode_windows(engine, load("mtdna6"), batch, **{**layout, **wrong})
    for fraction in ({"stride": 2.5}, {"window": 3.0}):
        with pytest.raises(TypeError, match="float"):
            encode_windows(engine, load("mtdna6"), batch, **{**layout, **fraction})
    with pytest.raises(ValueError, match=r"shape \(7,\) for 8 bytes"):
        encode_windows(engine, load("mtdna6"), batch, channel=np.zeros(7, np.float32), **layout)
    cut = Batch(["ACGTACGT"], options=EncodeOptions(max_length=3))
    with pytest.raises(ValueError, match="max_length"):
        encode_windows(engine, load("mtdna6"), cut, **layout)
    with pytest.raises(NotCovered):
        encode_windows(engine, load("gpt2"), batch, **layout)


def check_augmented(engine, name, texts, options, augmentation) -> None:
    """The ids are those of the rows that NumPy makes."""
    vocabulary = load(name)
    texts = [text for text in texts if not may_split_kmers(vocabulary, text)]
    sent = Batch(texts, options=options)
    got = encode_augmented(engine, vocabulary, sent, augmentation)
    data, offsets = augment(sent.data, sent.offsets, augmentation)
    for row in range(len(texts)):
        text = data[offsets[row] : offsets[row + 1]]
        try:
            wanted = tokenizer.encode(vocabulary, text.tobytes().decode(), options)
        except UnicodeDecodeError:
            assert got.errors[row].code == "not_utf8"
        except RowRefused as refused:
            assert got.errors[row] == refused.error
        else:
            assert row not in got.errors
            assert got.row(row).tolist() == wanted.ids


@settings(max_examples=100)
@given(
    st.sampled_from(
        ["mtdna6", "nt_v2", "caduceus", "dnabert1_3mer", "dnabert2", "gena_lm_t2t_32k"]
    ),
    TEXTS,
    st.builds(
        EncodeOptions,
        reverse_complement=st.booleans(),
        circular=st.sampled_from([None, True]),
        special=st.sampled_from(["match", "plain", "refuse"]),
        max_length=st.none() | st.integers(0, 9),
    ),
    st.builds(
        Augmentation,
        st.integers(0, 2**64 - 1),
        st.none() | st.integers(1, 30),
        st.sampled_from([0.0, 0.1, 1.0]),
        st.integers(0, 2**40),
    ),
)
@pytest.mark.slow
def test_any_augmented_rows_have_the_ids_of_what_numpy_makes(name, texts, options, augmentation):
    check_augmented(engine_of("emulated"), name, texts, options, augmentation)


def test_long_rows_are_augmented_alike(engine):
    chance = np.random.default_rng(4)
    texts = ["".join(chance.choice([*"ACGTacgtN"], size)) for size in (0, 3, 500, 4097, 9000)]
    for options in (EncodeOptions(), EncodeOptions(reverse_complement=True)):
        for augmentation in (Augmentation(11, 501), Augmentation(12, None, 0.02), Augmentation(13)):
            for name in ("caduceus", "dnabert2"):
                check_augmented(engine, name, texts, options, augmentation)
    with pytest.raises(ValueError, match="spans"):
        spans = Batch(texts, options=EncodeOptions(spans=True))
        encode_augmented(engine, load("caduceus"), spans, Augmentation(1))
    with pytest.raises(NotCovered):
        encode_augmented(engine, load("gpt2"), Batch(["a"]), Augmentation(1))
