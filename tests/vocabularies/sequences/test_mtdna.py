"""The mtDNA tokenizer against its document, the order of its code, and the reference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data_files import data_bytes, expected, ids_digest, records
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import load
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer
from vocabularies.sequences.mtdna import KmerVocabulary, tokenize_sequence, window_sequence

SIX = KmerVocabulary.build(k=6)
THREE = KmerVocabulary.build(k=3)
GENOME = "dna/mtdna_rCRS_NC_012920.1.fa"


def test_the_documents_examples() -> None:
    assert len(SIX) == 4102
    assert [SIX.encode(word) for word in ("AAAAAA", "TTTTTT", "ACGTAN", "[CLS]")] == [6, 4101, 3, 1]
    assert [SIX.decode(i) for i in (6, 4101, 5, -1, 4102)] == [
        *("AAAAAA", "TTTTTT", "[HET]", "[UNK]", "[UNK]")
    ]
    assert "ACGTAC" in SIX
    assert "[MASK]" in SIX
    assert "ACG" not in SIX
    assert SIX.vocabulary == load("mtdna6")


@pytest.mark.parametrize("k", range(1, 9))
def test_a_vocabulary_of_any_k_is_saved_and_read_again(k: int, tmp_path: Path) -> None:
    built = KmerVocabulary.build(k)
    assert len(built) == 4**k + 6
    assert built.decode(built.encode("ACGTACGT"[:k])) == "ACGTACGT"[:k]
    built.save_pretrained(tmp_path / "new")
    assert KmerVocabulary.from_pretrained(tmp_path / "new").vocabulary == built.vocabulary


@pytest.mark.slow
def test_more_kmers_than_a_file_may_have_are_built_and_read_in_process(tmp_path: Path) -> None:
    config = b'{"model_type": "kmer", "k": 11}'
    with pytest.raises(VocabularyError, match="1 to 4000000 k-mers"):
        read_vocabulary({"vocab_config.json": config})
    (tmp_path / "vocab_config.json").write_bytes(config)
    built = KmerVocabulary.from_pretrained(tmp_path)
    assert len(built) == len(KmerVocabulary.build(11)) == 4**11 + 6
    tokens = tokenize_sequence("ACGTTGCAACGTN", built, circular=False)
    assert tokens["input_ids"].tolist() == [*map(built.encode, ["ACGTTGCAACG", "CGTTGCAACGT"]), 3]
    assert built.decode(tokens["input_ids"][1]) == "CGTTGCAACGT"


def test_the_models_own_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_bytes(data_bytes("dna_vocab/mtdna6/vocab.json"))
    assert KmerVocabulary.from_pretrained(tmp_path).vocabulary == SIX.vocabulary


def test_the_models_code_reads_what_is_saved(tmp_path: Path) -> None:
    SIX.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "vocab.json").read_bytes())
    assert saved == data_json_of("dna_vocab/mtdna6/vocab.json")


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_folder_of_the_models_own_code_has_the_list_alone(tmp_path: Path, k: int) -> None:
    built = KmerVocabulary.build(k)
    built.save_pretrained(tmp_path)
    (tmp_path / "vocab_config.json").unlink()
    assert KmerVocabulary.from_pretrained(tmp_path).vocabulary == built.vocabulary


def data_json_of(name: str) -> dict[str, int]:
    words: dict[str, int] = json.loads(data_bytes(name))
    return words


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [("nt_v2", "no k-mer at every base"), ("gpn", "kind bpe"), ("dnabert1_3mer", "white space")],
)
def test_other_vocabularies_are_refused(vocabulary: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KmerVocabulary(load(vocabulary))


def by_hand(seq: str, k: int, stride: int, circular: bool, junction: str) -> list[tuple[str, int]]:
    """List (k-mer, place) in the order of the document or of the code, by a plain loop."""
    seq = seq.upper()
    found = []
    for place in range(0, len(seq), stride):
        if circular or place + k <= len(seq):
            word = "".join(seq[(place + i) % len(seq)] for i in range(k))
            found.append((word, place))
    if junction == "prepend":
        found.sort(key=lambda item: (item[1] + k <= len(seq), item[1]))
    return found


@given(
    seq=st.text("ACGTacgtNRß", max_size=40),
    stride=st.integers(1, 9),
    circular=st.booleans(),
    junction=st.sampled_from(["append", "prepend"]),
    most=st.integers(0, 50) | st.none(),
)
def test_tokens_are_those_of_a_loop(
    seq: str, stride: int, circular: bool, junction: str, most: int | None
) -> None:
    length = len(seq.upper())
    if circular and 0 < length < 3:
        with pytest.raises(ValueError, match="at least 3 bases"):
            tokenize_sequence(seq, THREE)
        return
    levels = np.arange(length) / 64
    tokens = tokenize_sequence(
        seq,
        THREE,
        stride=stride,
        circular=circular,
        junction=junction,  # type: ignore[arg-type]
        max_seq_len=most,
        het_levels=levels,
    )
    wanted = by_hand(seq, 3, stride, circular, junction)[:most]
    assert tokens["input_ids"].tolist() == [THREE.encode(word) for word, _ in wanted]
    assert tokens["position_ids"].tolist() == [place for _, place in wanted]
    assert tokens["het_values"].tolist() == [place / 64 for _, place in wanted]
    assert tokens["attention_mask"].tolist() == [1] * len(wanted)


@pytest.mark.parametrize("junction", ["append", "prepend"])
def test_the_orders_are_the_references(junction: str) -> None:
    model = SIX.vocabulary.model
    fields = {"junction": junction, "circular": True}
    vocabulary = Vocabulary(
        tokens=SIX.vocabulary.tokens,
        model=type(model)(**{f: getattr(model, f) for f in model.__slots__} | fields),
        special_tokens=SIX.vocabulary.special_tokens,
        roles=SIX.vocabulary.roles,
    )
    seq = records(GENOME)[0][:500]
    row = tokenizer.encode(vocabulary, seq, EncodeOptions(add_special_tokens=False))
    tokens = tokenize_sequence(seq, SIX, junction=junction)  # type: ignore[arg-type]
    assert tokens["input_ids"].tolist() == row.ids
    assert tokens["position_ids"].tolist() == [begin for begin, _ in row.spans]


@pytest.mark.parametrize("name", [GENOME, "dna/mtdna_archaic_dev.fa"])
def test_whole_genomes_are_the_published_ones(name: str) -> None:
    sequences = records(name)
    for circular in (True, False):
        wanted = expected()["mtdna6_circular" if circular else "mtdna6_linear"][name]["sha256"]
        ids = [
            tokenize_sequence(seq, SIX, circular=circular, max_seq_len=None)["input_ids"]
            for seq in sequences
        ]
        assert ids_digest(np.concatenate(ids)) == wanted


def test_windows_of_a_genome_wrap() -> None:
    (seq,) = records(GENOME)
    levels = np.linspace(0, 1, len(seq), dtype=np.float32)
    cut = window_sequence(seq, SIX, het_levels=levels)
    assert cut.input_ids.shape == (65, 512)
    places = (np.arange(512) + 64 * 256) % 16569
    assert cut.position_ids[64].tolist() == places.tolist()
    assert cut.channel is not None
    assert np.array_equal(cut.channel[64], levels[places])
    with_cls = window_sequence(seq, SIX, add_cls=True)
    assert with_cls.input_ids.shape == (65, 513)
    assert (with_cls.input_ids[:, 0] == 1).all()
    linear = window_sequence(seq, SIX, circular=False)
    assert linear.attention_mask[64].sum() == 16564 - 64 * 256


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 5}, "k is 5, and the vocabulary has 6-mers"),
        ({"stride": 0}, "stride is 0"),
        ({"max_seq_len": -1}, "max_seq_len -1"),
        ({"junction": "middle"}, "'middle'"),
        ({"het_levels": [0.5]}, r"shape \(1,\) for 8 bases"),
        ({"het_levels": [0, 1, 0.5, 2, 0, 0, -1, 0]}, r"\[3\] is 2.0; it must be 0 to 1"),
        ({"het_levels": [0.5] * 7 + [float("nan")]}, r"\[7\] is nan"),
    ],
)
def test_what_does_not_fit_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenize_sequence("ACGTACGT", SIX, **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 to 12"):
        KmerVocabulary.build(13)


def test_other_types_are_refused() -> None:
    """A stride of 2.9 would be 2 for some and 2.9 for others."""
    with pytest.raises(TypeError, match="not bytes"):
        tokenize_sequence(b"ACGTACGT", SIX)  # type: ignore[arg-type]
    for function in (tokenize_sequence, window_sequence):
        with pytest.raises(TypeError, match="float"):
            function("ACGTACGT", SIX, stride=2.9)  # type: ignore[operator]
    with pytest.raises(TypeError, match="float"):
        window_sequence("ACGTACGT", SIX, window=2.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="str"):
        KmerVocabulary.build("6")  # type: ignore[arg-type]


@pytest.mark.torch
def test_arrays_go_to_torch_without_a_copy() -> None:
    torch = torch_or_skip()
    for array in tokenize_sequence("ACGTACGTAC", SIX).values():
        tensor = torch.from_dlpack(array)
        assert tensor.data_ptr() == array.ctypes.data
        assert tensor.tolist() == array.tolist()
