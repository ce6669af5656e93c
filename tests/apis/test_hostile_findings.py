"""Faults that hostile testing found, each with the smallest request that showed it."""

from __future__ import annotations

import json

import pytest
import tiktoken
from tokenizers import Tokenizer

from service.engines.cpu.engine import CpuEngine
from tests.service.apis.native.test_vocabularies import run
from tests.support.data_files import data_bytes
from tests.support.inputs.tokenizer_documents import rank_file
from vocabularies import builtin, formats
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.errors import VocabularyError
from vocabularies.model.byte_alphabet import to_alphabet
from vocabularies.model.types import Upstream
from vocabularies.reference import tokenizer

ODD_TEXTS = [
    " \u180e'",
    "\u180e_M",
    " \u180e",
    "a'\u017f'LLe",
    "a'\u017f'Se",
    "a'\u017f'LLE",
    "\u017f",
    "x\u180e\n y",
]


@pytest.fixture(scope="module")
def engine() -> CpuEngine:
    return CpuEngine()


def document(**parts: object) -> dict:
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "vocab": {"[UNK]": 0, "b": 1, " ": 2, "a": 3, "A": 4},
        "merges": [],
    }
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []}
    whole |= {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    model |= parts.pop("model", {})  # type: ignore[arg-type]
    return whole | parts | {"model": model}


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
@pytest.mark.slow
def test_characters_that_a_library_classes_otherwise_get_the_reference_ids(engine, name):
    vocabulary = builtin.load(name)
    texts = [*ODD_TEXTS, "plain"]
    encoded = engine.encode(vocabulary, Batch(texts))
    for row, text in enumerate(texts):
        assert encoded.row(row).tolist() == tokenizer.encode(vocabulary, text).ids
        alone = engine.encode(vocabulary, Batch([text]))
        assert alone.ids.tolist() == encoded.row(row).tolist()


@pytest.mark.slow
def test_the_ids_that_tiktoken_gives_for_them(engine):
    for name, text, ids in [
        ("cl100k_base", " \u180e'", [87189, 254, 236, 6]),
        ("cl100k_base", "\u180e_M", [157, 254, 236, 62, 44]),
        ("o200k_base", "a'\u017f'LLe", [64, 6, 70067, 195838, 2486]),
    ]:
        assert engine.encode(builtin.load(name), Batch([text])).ids.tolist() == ids


@pytest.mark.slow
def test_the_same_for_an_uploaded_deepseek(engine):
    document = data_bytes("vocab/deepseek_v3/tokenizer.json.xz")
    vocabulary = formats.read_vocabulary({"tokenizer.json": document})
    library = Tokenizer.from_str(document.decode())
    for text in ODD_TEXTS:
        got = engine.encode(vocabulary, Batch([text], options=EncodeOptions(False)))
        assert got.ids.tolist() == library.encode(text, add_special_tokens=False).ids


ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}
VANISHING = [
    {
        "added_tokens": [
            {"id": 3, "content": "a", "normalized": True, **ADDED},
            {"id": 4, "content": "A", "normalized": True, **ADDED},
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
    },
    {
        "added_tokens": [{"id": 2, "content": " ", "normalized": True, **ADDED}],
        "normalizer": {"type": "Strip", "strip_left": True, "strip_right": True},
    },
    {
        "added_tokens": [{"id": 2, "content": " ", "normalized": True, **ADDED}],
        "normalizer": {"type": "Strip", "strip_left": True, "strip_right": True},
        "model": {"continuing_subword_prefix": "##"},
    },
]


@pytest.mark.parametrize("parts", VANISHING)
def test_a_special_token_that_normalizes_to_nothing_is_refused(engine, parts):
    content = json.dumps(document(**parts)).encode()
    with pytest.raises(VocabularyError, match=r"the normalizers? removes? all"):
        engine.load(formats.read_vocabulary({"tokenizer.json": content}))


def test_merges_with_a_prefix_inside_words_give_the_librarys_ids(engine):
    vocab = {"a": 0, "##b": 1, "##c": 2, "##bc": 3, "abc": 4, "b": 5}
    made = document(
        model={
            "continuing_subword_prefix": "##",
            "vocab": vocab,
            "merges": [["##b", "##c"], ["a", "##bc"]],
        }
    )
    content = json.dumps(made)
    vocabulary = formats.read_vocabulary({"tokenizer.json": content.encode()})
    assert isinstance(vocabulary.model, Upstream)
    assert "continuing_subword_prefix" in vocabulary.model.reason
    texts = ["abc", "bc", "abca", "bbb", ""]
    encoded = engine.encode(vocabulary, Batch(texts))
    library = Tokenizer.from_str(content)
    assert [encoded.row(i).tolist() for i in range(5)] == [library.encode(t).ids for t in texts]
    assert encoded.row(0).tolist() == [4]


def test_a_decoder_on_which_the_library_panics_is_refused_when_it_is_loaded(engine):
    decoder = {"type": "Strip", "content": "a", "start": 2**62, "stop": 2**62}
    content = json.dumps(document(model={"byte_fallback": True}, decoder=decoder)).encode()
    with pytest.raises(VocabularyError, match="fails on a text"):
        engine.load(formats.read_vocabulary({"tokenizer.json": content}))


@pytest.mark.parametrize("pattern", ["(A+)+B", "A*A*A*B", "(A|AA)+B", "(A{1,9}){1,9}B"])
def test_an_unbounded_pattern_is_computed_by_the_library_which_bounds_it(pattern):
    normalizer = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"}
    content = json.dumps(document(normalizer=normalizer)).encode()
    vocabulary = formats.read_vocabulary({"tokenizer.json": content})
    assert isinstance(vocabulary.model, Upstream)


def test_a_byte_without_a_token_becomes_the_unknown_id_and_offsets_stay_right(engine):
    letters = [to_alphabet(bytes([byte])) for byte in range(256) if byte != ord("Z")]
    vocab = {"[UNK]": 0, "[CLS]": 1} | {letter: i + 2 for i, letter in enumerate(letters)}
    flags = {"single_word": False, "lstrip": False, "normalized": False}
    made = document(
        added_tokens=[
            {"id": 0, "content": "[UNK]", "rstrip": False, "special": True, **flags},
            {"id": 1, "content": "[CLS]", "rstrip": True, "special": True, **flags},
        ],
        pre_tokenizer={
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": True,
        },
        decoder={
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": True,
        },
        model={"vocab": vocab, "unk_token": "[UNK]"},
    )
    content = json.dumps(made)
    vocabulary = formats.read_vocabulary({"tokenizer.json": content.encode()})
    library = Tokenizer.from_str(content)
    for text in ("Z", "[CLS]    Z", "[CLS]    a", "aZb[CLS] "):
        got = engine.encode(vocabulary, Batch([text], options=EncodeOptions(spans=True)))
        right = library.encode(text)
        assert got.ids.tolist() == right.ids
        assert [tuple(span) for span in got.spans.tolist()] == right.offsets


def test_windows_of_other_letters_count_characters_and_odd_channels_are_refused():
    async def scenario(client, _):
        body = {"vocabulary": "evo_bytes", "sequence": "Aé中", "window": 3, "stride": 2}
        body["channel"] = [0, 1, 2]
        answer = (await client.post("/v1/windows", json=body | {"vocabulary": "hyenadna"})).json()
        assert answer.get("status", 200) == 200, answer
        for name in ("input_ids", "digest"):
            refused = await client.post("/v1/windows", json=body | {"channel_name": name})
            assert (refused.status_code, refused.json()["where"]) == (422, "/channel_name")
        for value in (b"1e39", b"1e400", b"9" * 400, b"NaN"):
            content = json.dumps(body | {"vocabulary": "hyenadna"}).encode()
            content = content.replace(b"[0, 1, 2]", b"[0, %b, 2]" % value)
            headers = {"content-type": "application/json"}
            refused = await client.post("/v1/windows", content=content, headers=headers)
            assert refused.status_code in (400, 422), refused.text

    run(scenario)


def test_harmless_header_spellings_are_understood():
    async def scenario(client, _):
        body = b'{"vocabulary": "evo_bytes", "text": "x"}'
        for headers in (
            {"content-type": "application/JSON; charset=utf-8"},
            {"content-type": "application/json", "content-encoding": "identity"},
        ):
            response = await client.post("/v1/encode", content=body, headers=headers)
            assert response.status_code == 200, response.text

    run(scenario)


def test_a_vocabulary_on_which_the_library_panics_is_refused_and_not_a_traceback(engine):
    flags = {"single_word": False, "normalized": False, "special": True}
    made = document(
        added_tokens=[
            {"id": 5, "content": "<x>", "lstrip": False, "rstrip": True, **flags},
            {"id": 6, "content": "  ", "lstrip": True, "rstrip": False, **flags},
        ],
        normalizer={"type": "NFD"},
    )
    vocabulary = formats.read_vocabulary({"tokenizer.json": json.dumps(made).encode()})
    with pytest.raises(VocabularyError, match="fails on a text: AddedVocabulary bad split"):
        engine.load(vocabulary)


def two_that_become_one(**normalizer: object) -> bytes:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    made = document(
        added_tokens=[
            {"id": 5, "content": "Covid", "normalized": True, **flags},
            {"id": 6, "content": "<x>", "normalized": True, **flags},
            {"id": 7, "content": "covid", "normalized": True, **flags},
        ],
        normalizer={"type": "Lowercase"} | normalizer,
    )
    return json.dumps(made).encode()


def test_two_added_tokens_that_the_normalizer_makes_the_same_are_refused(engine):
    """tokenizers 0.23.3 finds one or the other, by the seed of a hash function: no id is right."""
    content = two_that_become_one()
    seen = {tuple(Tokenizer.from_str(content.decode()).encode("COVID").ids) for _ in range(64)}
    assert seen == {(5,), (7,)}
    with pytest.raises(VocabularyError, match=r"special_tokens\[2\]: is the same as") as refused:
        formats.read_vocabulary({"tokenizer.json": content})
    assert "special_tokens[0]" in str(refused.value)
    only_the_library = {"type": "BertNormalizer", "clean_text": True, "lowercase": True}
    only_the_library |= {"handle_chinese_chars": True, "strip_accents": None}
    vocabulary = formats.read_vocabulary(
        {"tokenizer.json": two_that_become_one(**only_the_library)}
    )
    assert isinstance(vocabulary.model, Upstream)
    with pytest.raises(VocabularyError, match="id 7: 'covid' is the same as 'Covid'"):
        engine.load(vocabulary)


def test_an_added_token_whose_number_a_list_with_holes_has_given_away_is_refused():
    """Both would have the id: text of the other one was encoded without its ids."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    made = document(
        added_tokens=[{"id": 2, "content": "<x>", **flags}],
        model={"vocab": {"a": 0, "b": 2}},
    )
    assert Tokenizer.from_str(json.dumps(made)).encode("b<x>").ids == [2, 2]
    with pytest.raises(VocabularyError, match=r"added_tokens\[0\]: id 2 is also the id of 'b'"):
        formats.read_vocabulary({"tokenizer.json": json.dumps(made).encode()})


def test_special_tokens_of_ranks_of_which_one_begins_with_another_are_refused():
    """Which one tiktoken 0.14 finds is decided by a hash table: half of all pairs go either way."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    found = set()
    for number in range(40):
        special = {f"<{number}": 256, f"<{number}>": 257}
        library = tiktoken.Encoding(
            "x", pat_str="(?s).", mergeable_ranks=ranks, special_tokens=special
        )
        found.add(library.encode(f"<{number}>", allowed_special="all")[0])
    assert found == {256, 257}
    file = {"x.tiktoken": rank_file([*ranks])}
    special = {"<a": 256, "b": 257, "<a>": 258}
    with pytest.raises(VocabularyError, match=r"special_tokens\['<a>'\]: begins with '<a'"):
        formats.read_vocabulary(file, pretokenizer="gpt2", special_tokens=special)
    special = {"<a>": 256, "<b>": 257, "a>": 258}
    formats.read_vocabulary(file, pretokenizer="gpt2", special_tokens=special)
