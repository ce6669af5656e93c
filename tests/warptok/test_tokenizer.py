"""The calls of a tokenizer: their results beside the reference, their options and refusals."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import warptok
from tests.support.inputs.nasty_texts import SEQUENCES, TEXTS
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import load
from vocabularies.reference import tokenizer as reference

ENDOFTEXT = "<|endoftext|>"


@pytest.fixture(scope="module")
def gpt2() -> warptok.Tokenizer:
    return warptok.load("gpt2", device="cpu")


@pytest.fixture(scope="module")
def dnabert2() -> warptok.Tokenizer:
    return warptok.load("dnabert2", device="cpu")


@pytest.fixture(scope="module")
def mtdna() -> warptok.Tokenizer:
    return warptok.load("mtdna6", device="cpu")


@pytest.mark.parametrize("name", ["gpt2", "dnabert2", "hyenadna", "mtdna6"])
def test_ids_counts_and_offsets_are_those_of_the_reference(name):
    tok, vocabulary = warptok.load(name, device="cpu"), load(name)
    for text in TEXTS[:20] if name == "gpt2" else SEQUENCES:
        right = reference.encode(vocabulary, text, EncodeOptions(spans=True))
        assert tok.encode(text) == list(right.ids)
        assert tok.encode(text.encode()) == list(right.ids)
        assert tok.count(text) == len(right.ids)
        spans = np.array(right.spans, np.int64).reshape(-1, 2)
        assert tok.offsets(text, "bytes").tolist() == spans.tolist()


def test_options_have_the_words_of_the_service(gpt2, dnabert2, mtdna):
    assert gpt2.encode(ENDOFTEXT) == [50256]
    assert gpt2.encode(ENDOFTEXT, special="plain") == [27, 91, 437, 1659, 5239, 91, 29]
    assert dnabert2.encode("ACGTACGT", add_special_tokens=False) == [5, 194, 6, 1049]
    assert dnabert2.encode("ACGTACGT", max_length=4) == [1, 5, 194, 2]
    assert dnabert2.encode("ACGTACGT", max_length=4, truncation_side="left") == [1, 6, 1049, 2]
    assert dnabert2.encode("AACG", reverse_complement=True) == dnabert2.encode("CGTT")
    assert dnabert2.encode("aacg", uppercase=True) == dnabert2.encode("AACG")
    assert mtdna.count("ACGTACGTAC", circular=True) == 10
    assert mtdna.count("ACGTACGTAC", circular=False) == 5
    assert gpt2.encode(b"\xff\xfe", invalid_utf8="bytes") == [187, 186]


def test_options_of_a_batch_may_be_lists(dnabert2):
    batch = dnabert2.encode_batch(
        ["AACG", "AACG"], reverse_complement=[True, False], max_length=[None, 3]
    )
    assert batch.to_list() == [dnabert2.encode("CGTT"), dnabert2.encode("AACG", max_length=3)]
    batch = dnabert2.encode_batch(["aacg", "aacg"], uppercase=[True, False])
    assert batch.to_list() == [dnabert2.encode("AACG"), dnabert2.encode("aacg")]
    with pytest.raises(warptok.InvalidRequest, match="has 1 values, but there are 2 texts"):
        dnabert2.encode_batch(["A", "C"], max_length=[1])
    with pytest.raises(warptok.InvalidRequest, match="has 1 values, but there are 2 texts"):
        dnabert2.encode_batch(["A", "C"], max_length=np.array([1]))
    with pytest.raises(warptok.InvalidRequest, match="max_length must be one value"):
        dnabert2.encode("A", max_length=[1])


def test_copies_have_settings_of_their_own_and_no_process_gets_one_pickled(gpt2):
    for made in (copy.copy(gpt2), copy.deepcopy({"tokenizer": gpt2})["tokenizer"]):
        assert made.encode("Hello, world!") == gpt2.encode("Hello, world!")
        made.pad_token = "<|endoftext|>"
        assert made.pad_token_id == 50256
        assert gpt2.pad_token_id is None
    with pytest.raises(TypeError, match=r"call warptok\.load\(\.\.\.\) in each process"):
        pickle.dumps(gpt2)


def test_options_may_be_numpys(dnabert2):
    texts, strands, lengths = ["AACG", "AACG"], np.array([True, False]), np.array([3, 4])
    batch = dnabert2.encode_batch(texts, reverse_complement=strands, max_length=lengths)
    assert batch.to_list() == [
        dnabert2.encode("CGTT", max_length=3),
        dnabert2.encode("AACG", max_length=4),
    ]
    assert dnabert2.count_batch(texts, max_length=lengths).tolist() == [3, 4]
    one = dnabert2.encode("aacg", uppercase=np.True_, max_length=lengths.max())
    assert one == dnabert2.encode("AACG", max_length=4)
    for wrong in (np.float64(3), np.array([1.0, 2.0]), np.array([[1, 2], [3, 4]])):
        with pytest.raises(warptok.InvalidRequest, match="must be a whole number"):
            dnabert2.encode_batch(texts, max_length=wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_lenght": 3}, "did you mean max_length"),
        ({"truncation": True}, r"max_length=512 cuts; or call .* tok\(texts, truncation=\.\.\.\)"),
        ({"return_tensors": "pt"}, "makes tensors"),
        ({"allowed_special": "all"}, "special='match'"),
        ({"return_offsets": "bytes"}, r"offsets\(text\)"),
        ({"whatever": 1}, "its options are add_special_tokens, special"),
    ],
)
def test_words_of_other_libraries_name_the_right_call(gpt2, options, message):
    with pytest.raises(TypeError, match=message):
        gpt2.encode("a", **options)
    with pytest.raises(TypeError, match="has no option"):
        gpt2.count_batch(["a"], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"special": "match it"}, "special is 'match it'; it must be one of match, plain, refuse"),
        ({"max_length": -1}, "max_length is -1; it must be at least 0"),
        ({"max_length": "3"}, "max_length is '3'; it must be a whole number"),
        ({"max_length": True}, "max_length is True; it must be a whole number"),
        ({"add_special_tokens": 1}, "add_special_tokens is 1; it must be True or False"),
        ({"circular": "yes"}, "circular is 'yes'; it must be True or False"),
        ({"truncation_side": "up"}, "truncation_side is 'up'"),
        ({"surrogates": "drop"}, "surrogates is 'drop', neither refuse nor replace"),
        ({"invalid_utf8": "drop"}, "invalid_utf8 is 'drop'"),
    ],
)
def test_wrong_values_are_refused(gpt2, options, message):
    for call in (gpt2.encode, gpt2.count, gpt2.offsets):
        with pytest.raises(warptok.InvalidRequest, match=message):
            call("a", **options)
    with pytest.raises(ValueError, match=message):
        gpt2.encode_batch(["a"], **options)


def test_several_texts_where_one_is_taken(gpt2):
    with pytest.raises(TypeError, match=r"encode\(\) takes one text.*encode_batch\(texts\)"):
        gpt2.encode(["a"])
    with pytest.raises(TypeError, match=r"chunks\(\) takes one text, str or bytes, not int"):
        gpt2.chunks(5)
    with pytest.raises(warptok.InvalidRequest, match=r"2 dimensions; use decode_batch\(rows\)"):
        gpt2.decode([[1], [2]])


def test_a_refused_text_raises_or_is_kept_apart(gpt2):
    texts = ["fine", ENDOFTEXT, "fine"]
    with pytest.raises(warptok.RowRefused) as refused:
        gpt2.encode_batch(texts, special="refuse")
    assert (refused.value.code, refused.value.row) == ("special_token_refused", 1)
    assert "row 1" in str(refused.value)
    batch = gpt2.encode_batch(texts, special="refuse", errors="keep")
    assert batch.to_list() == [[38125], [], [38125]]
    assert batch.errors[1].code == "special_token_refused"
    assert repr(batch) == "<warptok.EncodedBatch: 3 rows, 2 ids int32, 1 refused, by cpu>"
    with pytest.raises(warptok.RowRefused):
        gpt2.count_batch(texts, special="refuse")
    with pytest.raises(warptok.RowRefused, match="not_utf8"):
        gpt2.encode(b"\xff")
    with pytest.raises(warptok.InvalidRequest, match="errors is 'ignore'"):
        gpt2.encode_batch(texts, errors="ignore")


def test_offsets_in_each_unit(gpt2):
    text = "wörld 🙂"
    for unit, size in (("codepoints", 7), ("utf16", 8), ("bytes", 11)):
        assert gpt2.offsets(text, unit)[-1, 1] == size
        mapped = gpt2.encode_batch(["a", text, ""], return_offsets=unit).offset_mapping
        assert mapped[1:].tolist() == gpt2.offsets(text, unit).tolist()
    with pytest.raises(warptok.InvalidRequest, match="unit is 'words'"):
        gpt2.offsets(text, "words")
    with pytest.raises(warptok.InvalidRequest, match='can only be in "bytes"'):
        gpt2.offsets(b"\xff", invalid_utf8="bytes")
    with pytest.raises(warptok.InvalidRequest, match='can only be in "bytes"'):
        gpt2.encode_batch([b"\xff"], invalid_utf8="bytes", return_offsets="utf16")
    assert gpt2.offsets(b"\xff", "bytes", invalid_utf8="bytes").tolist() == [[0, 1]]


def test_decoding_is_the_inverse(gpt2, dnabert2):
    texts = TEXTS[:20]
    batch = gpt2.encode_batch(texts)
    assert gpt2.decode_batch(batch) == texts
    assert gpt2.decode_batch(batch.to_list()) == texts
    assert [gpt2.decode(row) for row in batch] == texts
    assert gpt2.decode_bytes(gpt2.encode("北")[:1]) == "北".encode()[:2]
    assert gpt2.decode(gpt2.encode("北")[:1]) == "\ufffd"
    ids = dnabert2.encode("ACGT")
    assert dnabert2.decode(ids, skip_special_tokens=True) == "ACGT"
    assert dnabert2.decode(iter(ids)) == "[CLS]ACGT[SEP]"
    padded = dnabert2.encode_batch(["ACGT", "ACGTACGT"], padding="longest")
    assert dnabert2.decode_batch(padded, skip_special_tokens=True) == ["ACGT", "ACGTACGT"]
    assert gpt2.decode([]) == ""
    with pytest.raises(warptok.RowRefused, match="id_out_of_range") as refused:
        gpt2.decode_batch([[1], [99999]])
    assert refused.value.row == 1
    with pytest.raises(warptok.InvalidRequest, match="ids is an array of float64"):
        gpt2.decode([1.5])


def test_chunks_are_those_of_the_service(gpt2, dnabert2):
    chunks = gpt2.chunks(
        "One two three four five", chunk_size=3, chunk_overlap=1, return_texts=True
    )
    assert [chunk.tolist() for chunk in chunks] == [[3198, 734, 1115], [1115, 1440, 1936]]
    assert chunks.offset_mapping.tolist() == [[0, 13], [7, 23]]
    assert chunks.texts == ["One two three", " three four five"]
    assert (len(chunks), chunks.num_tokens, chunks.starts.tolist()) == (2, 5, [0, 2])
    assert {row[0] for row in dnabert2.chunks("ACGTACGT", chunk_size=3)} == {1}
    with pytest.raises(warptok.InvalidRequest, match="must be larger than the 2 begin and end"):
        dnabert2.chunks("ACGT", chunk_size=2)
    with pytest.raises(warptok.InvalidRequest, match="must be less than the 3 tokens"):
        gpt2.chunks("a", chunk_size=3, chunk_overlap=3)
    with pytest.raises(warptok.InvalidRequest, match="chunk_size is 0; it must be at least 1"):
        gpt2.chunks("a", chunk_size=0)


def test_windows_of_lower_case_become_upper_case():
    tok = warptok.load("hyenadna", device="cpu")
    linear = tok.windows("GATTACA", window=4, stride=2)
    upper = tok.windows("gattaca", window=4, stride=2, uppercase=True)
    assert upper.input_ids.tolist() == linear.input_ids.tolist()
    lower = tok.windows("gattaca", window=4, stride=2)
    assert lower.input_ids.tolist() != linear.input_ids.tolist()


def test_windows_of_a_circular_sequence(mtdna, gpt2):
    sequence = "GATCACAGGTCTATCACCCT"
    levels = np.linspace(0, 1, len(sequence))
    layout = {"window": 8, "stride": 4}
    windows = mtdna.windows(sequence, circular=True, channel=levels, add_cls=True, **layout)
    assert windows.input_ids.shape == windows.position_ids.shape == (5, 9)
    assert windows.position_ids[-1, 1:].tolist() == [16, 17, 18, 19, 0, 1, 2, 3]
    assert windows.channel is not None
    assert windows.channel[0, 1:].tolist() == pytest.approx(levels[:8])
    assert [*windows.fields("het_values")][-1] == "het_values"
    ahead = mtdna.windows(sequence, circular=True, junction="prepend", **layout)
    assert ahead.position_ids[0].tolist() == [15, 16, 17, 18, 19, 0, 1, 2]
    linear = mtdna.windows(sequence, **layout)
    assert linear.input_ids.shape == (4, 8)
    with pytest.raises(
        warptok.InvalidRequest, match=r"channel has \[3\] values, but the sequence has 20 bases"
    ):
        mtdna.windows(sequence, channel=[1, 2, 3])
    with pytest.raises(warptok.InvalidRequest, match="not a finite 32-bit number"):
        mtdna.windows("A", channel=[float("nan")])
    with pytest.raises(warptok.InvalidRequest, match="no padding token for windows"):
        gpt2.windows("A")
    with pytest.raises(warptok.InvalidRequest, match=r"no \[CLS\] token"):
        warptok.load("evo_bytes").windows("A", add_cls=True)
    with pytest.raises(warptok.InvalidRequest, match="stride is 0; it must be at least 1"):
        mtdna.windows("A", stride=0)


def test_threads_share_a_tokenizer(gpt2):
    right = [gpt2.encode(text) for text in TEXTS]
    wrong: list[int] = []

    def encode_all() -> None:
        if gpt2.encode_batch(TEXTS).to_list() != right:
            wrong.append(1)

    threads = [threading.Thread(target=encode_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_needs_a_gpu_says_so(gpt2, mtdna, dnabert2):
    with pytest.raises(
        warptok.DeviceUnavailable, match=r'this call needs a GPU; load.*device="cuda"'
    ):
        gpt2.encode_to_device(["a"])
    with pytest.raises(warptok.DeviceUnavailable, match="this call needs a GPU"):
        mtdna.windows_to_device(["ACGTACGT"])
    with pytest.raises(warptok.InvalidRequest, match="add_special_tokens=False, or encode_batch"):
        dnabert2.encode_to_device(["A"])
