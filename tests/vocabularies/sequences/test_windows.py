import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabularies.sequences.windows import make_windows, token_positions

PAD = 99


def double_loop(ids, positions, window, stride, circular, prefix, channel):
    """Make the windows by two plain loops: {field: list of rows}."""
    rows = {"input_ids": [], "attention_mask": [], "position_ids": [], "channel": []}
    starts = []
    start = 0
    while start < len(ids):
        cells = [(token_id, 1, 0, 0.0) for token_id in prefix]
        for t in range(start, start + window):
            if circular or t < len(ids):
                base = positions[t % len(ids)]
                cells.append((ids[t % len(ids)], 1, base, channel[base]))
            else:
                cells.append((PAD, 0, 0, 0.0))
        for name, column in zip(rows, zip(*cells, strict=True), strict=True):
            rows[name].append(list(column))
        starts.append(start)
        start += stride
    return rows, starts


def make(ids, positions=None, *, channel=None, **settings):
    positions = range(len(ids)) if positions is None else positions
    settings = {"window": 2, "stride": 2, "circular": False, "pad_id": PAD} | settings
    channel = None if channel is None else np.array(channel, np.float32)
    return make_windows(
        np.array(ids, np.int32), np.array(positions, np.int64), channel=channel, **settings
    )


@given(
    num_tokens=st.integers(0, 20),
    window=st.integers(1, 25),
    stride=st.integers(1, 25),
    circular=st.booleans(),
    prefix=st.lists(st.integers(0, 9), max_size=2),
    random=st.randoms(use_true_random=False),
)
def test_windows_are_those_of_two_loops(num_tokens, window, stride, circular, prefix, random):
    ids = [random.randrange(100, 1000) for _ in range(num_tokens)]
    positions = [random.randrange(50) for _ in ids]
    channel = [random.randrange(1, 100) / 4 for _ in range(50)]
    settings = {"window": window, "stride": stride, "circular": circular, "prefix": prefix}
    rows, starts = double_loop(ids, positions, window, stride, circular, prefix, channel)

    made = make(ids, positions, channel=channel, **settings)

    assert made.starts.tolist() == starts
    for name, expected in rows.items():
        array = getattr(made, name)
        assert array.shape == (len(starts), len(prefix) + window)
        assert array.tolist() == expected, name


def test_arrays_have_their_types():
    made = make([5, 6, 7], channel=[0.1, 0.2, 0.3])
    assert made.input_ids.dtype == np.int32
    assert made.attention_mask.dtype == np.int8
    assert made.position_ids.dtype == np.int64
    assert made.channel.dtype == np.float32
    assert made.starts.dtype == np.int64


def test_the_last_window_of_a_linear_sequence_is_padded():
    made = make([5, 6, 7], [0, 10, 20])
    assert made.input_ids.tolist() == [[5, 6], [7, PAD]]
    assert made.attention_mask.tolist() == [[1, 1], [1, 0]]
    assert made.position_ids.tolist() == [[0, 10], [20, 0]]
    assert made.channel is None


def test_the_last_window_of_a_circular_sequence_wraps():
    made = make([5, 6, 7], [0, 10, 20], circular=True)
    assert made.input_ids.tolist() == [[5, 6], [7, 5]]
    assert made.attention_mask.tolist() == [[1, 1], [1, 1]]
    assert made.position_ids.tolist() == [[0, 10], [20, 0]]


def test_a_circular_sequence_shorter_than_the_window_goes_round_more_than_once():
    assert make([5, 6], circular=True, window=5).input_ids.tolist() == [[5, 6, 5, 6, 5]]


def test_a_prefix_stands_before_every_window_and_is_no_base():
    made = make([5, 6, 7], [4, 5, 6], prefix=(1,), channel=[0.5] * 7)
    assert made.input_ids.tolist() == [[1, 5, 6], [1, 7, PAD]]
    assert made.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert made.position_ids.tolist() == [[0, 4, 5], [0, 6, 0]]
    assert made.channel.tolist() == [[0.0, 0.5, 0.5], [0.0, 0.5, 0.0]]


def test_a_human_mitochondrial_genome_has_65_windows_and_the_last_ones_wrap():
    length = 16_569
    channel = np.arange(length) / length
    made = make(range(length), window=512, stride=256, circular=True, channel=channel)
    assert made.input_ids.shape == (65, 512)
    assert made.starts.tolist() == list(range(0, length, 256))
    last = [*range(64 * 256, length), *range(512 - (length - 64 * 256))]
    assert made.input_ids[64].tolist() == last
    assert made.position_ids[64].tolist() == last
    assert made.channel[64].tolist() == channel[last].astype(np.float32).tolist()
    assert made.attention_mask.all()


def test_a_stride_beyond_the_window_leaves_gaps():
    assert make([1, 2, 3, 4, 5], stride=3).input_ids.tolist() == [[1, 2], [4, 5]]


def test_no_tokens_give_no_windows():
    for circular in (False, True):
        made = make([], circular=circular, channel=[])
        assert made.input_ids.shape == made.channel.shape == (0, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, "window is 0"),
        ({"stride": 0}, "stride is 0"),
        ({"positions": [0]}, "there are 1 positions for 2 ids"),
        ({"positions": [0, 3], "channel": [0.5] * 3}, "from 0 to 3; the channel has 3 values"),
        ({"positions": [-1, 0], "channel": [0.5] * 3}, "from -1 to 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make([5, 6], **settings)


def test_the_result_belongs_to_the_caller():
    ids, positions = np.array([5, 6], np.int32), np.arange(2)
    made = make_windows(ids, positions, window=2, stride=2, circular=False, pad_id=0)
    made.input_ids[:] = 0
    made.position_ids[:] = 7
    assert ids.tolist() == [5, 6]
    assert positions.tolist() == [0, 1]


def test_fields_are_named_as_a_model_names_them():
    layout = {"window": 2, "stride": 2, "circular": False, "pad_id": 9}
    places, levels = np.arange(3), np.ones(3, np.float32)
    plain = make_windows(np.arange(3), places, **layout)
    assert [*plain.fields()] == ["input_ids", "attention_mask", "position_ids"]
    made = make_windows(np.arange(3), places, channel=levels, **layout)
    assert [*made.fields()] == ["input_ids", "attention_mask", "position_ids", "channel"]
    assert made.fields("het_values")["het_values"] is made.channel


@given(st.text("ACGT", min_size=3, max_size=9), st.integers(1, 9), st.booleans())
def test_the_other_strand_of_a_circle_has_positions_around_the_junction(bases, k, prepends):
    length = len(bases)
    begins = [*range(length)] if k <= length else []
    if prepends:
        begins = begins[length - k + 1 :] + begins[: length - k + 1]
    # Spans end at the junction, and are those of the same bases in the sequence as sent.
    spans = [[max(0, length - begin - k), length - begin] for begin in begins]
    spans = np.array(spans, np.int64).reshape(-1, 2)
    positions = token_positions(spans, circular=True, reverse_complement=True)
    complement = bases[::-1].translate(str.maketrans("ACGT", "TGCA")) * 2
    for begin, position in zip(begins, positions.tolist(), strict=True):
        covered = (bases * 2)[position : position + k]
        assert covered[::-1].translate(str.maketrans("ACGT", "TGCA")) == complement[begin:][:k]


def test_k_mers_that_are_several_tokens_keep_the_begins_of_their_spans():
    spans = np.array([[2, 3], [1, 2], [0, 2], [0, 1]])
    for circular, strand in ((True, True), (True, False), (False, True)):
        positions = token_positions(spans, circular=circular, reverse_complement=strand)
        assert positions.tolist() == [2, 1, 0, 0]
