"""Texts and ids on which `tokenizers` panics, or whose places it gets wrong, over HTTP.

A vocabulary on which it fails at once is refused when it is loaded. These fail later, as the
normalizer leaves nothing of texts without "€", and "€" itself is in no text.
"""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from service.engines.cpu.bpe.tokenizers_encoder import read_tokenizer
from service.engines.cpu.engine import CpuEngine
from tests.service.apis.native.test_vocabularies import run
from tests.support.inputs.tokenizer_documents import BYTES, added, document, encoded
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary

WITHOUT_EUROS = {"type": "Replace", "pattern": {"Regex": "\\A[^€]*\\z"}, "content": ""}
ACCENTS = {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": True}
ACCENTS |= {"strip_accents": True, "lowercase": False}
EMPTY_MATCHES = {"type": "Replace", "pattern": {"Regex": "a*"}, "content": "a"}
PANICS = document(
    {"a": 0, "b": 1},
    [],
    unk_token="a",
    normalizer={"type": "Sequence", "normalizers": [WITHOUT_EUROS, EMPTY_MATCHES, ACCENTS]},
)
NO_EUROS = {"type": "Replace", "pattern": {"String": "€"}, "content": ""}
PANICS_DECODING = document(
    {"a": 0, "##b": 1, "€": 2},
    [],
    continuing_subword_prefix="##",
    normalizer=NO_EUROS,
    decoder={"type": "Strip", "content": "€", "start": 1, "stop": 1},
)
FALLBACK = {f"<0x{byte:02X}>": byte for byte in range(256)}
LONG_BYTES = document(
    {**FALLBACK, "a": 256, "a</w>": 257}, [], byte_fallback=True, end_of_word_suffix="</w>"
)


async def put(client, content: dict) -> None:
    answer = await client.put("/v1/vocabularies/mine", content=encoded(content))
    assert answer.status_code == 201, answer.text


def refused(answer) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["code"], answer.json()["where"]


def test_a_text_on_which_the_library_panics_is_refused_by_name_and_no_fault_of_ours(caplog):
    async def scenario(client, _):
        await put(client, PANICS)
        body = {"vocabulary": "mine", "text": "€é"}
        answer = await client.post("/v1/encode", json=body)
        assert refused(answer) == (422, "library_failed", "/text")
        assert "tokenizers" in answer.json()["detail"]
        body = {"vocabulary": "mine", "texts": ["é", "€é", "b"]}
        for path in ("/v1/encode/batch", "/v1/count"):
            batch = (await client.post(path, json=body)).json()
            assert [(e["row"], e["code"]) for e in batch["errors"]] == [(1, "library_failed")]
            assert batch["num_tokens"] == [0, 0, 0]
        verified = await client.post("/v1/vocabularies/mine/verify", json={"texts": body["texts"]})
        assert (verified.status_code, verified.json()["num_different"]) == (200, 0)

    run(scenario, CpuEngine())
    assert "This is a bug" not in caplog.text


@pytest.mark.parametrize("special", ["match", "plain", "refuse"])
def test_a_text_on_which_it_panics_for_a_bpe_of_ours_has_no_ids_either(special, caplog):
    """Two of its tokens claim the same blanks: "AddedVocabulary bad split"."""
    blanks = added(" b", 256, lstrip=True, rstrip=True, special=False)
    line = added("\r\n", 257, lstrip=True, special=False)
    strip = {"type": "Strip", "strip_left": False, "strip_right": False}  # None for fastokens.
    fields = {"normalizer": strip, "added_tokens": [blanks, line]}
    content = document(BYTES, [], byte_level=True, **fields)

    async def scenario(client, _):
        await put(client, content)
        texts = ["c", " b\t\t b\r\n b", " b"]
        body = {"vocabulary": "mine", "texts": texts, "special": special}
        batch = (await client.post("/v1/encode/batch", json=body)).json()
        assert batch["ids"] == [[BYTES["c"]], [], [256]]
        assert [(e["row"], e["code"]) for e in batch["errors"]] == [(1, "library_failed")]

    run(scenario, CpuEngine())
    assert "This is a bug" not in caplog.text


def test_ids_on_which_the_library_panics_are_refused_alone():
    async def scenario(client, _):
        await put(client, PANICS_DECODING)
        answer = await client.post("/v1/decode", json={"vocabulary": "mine", "ids": [2]})
        assert refused(answer) == (422, "library_failed", "/ids")
        body = {"vocabulary": "mine", "ids": [[0, 0], [0, 2], [9], [0]]}
        batch = (await client.post("/v1/decode/batch", json=body)).json()
        assert batch["texts"] == ["aa", "", "", "a"]
        codes = {error["row"]: error["code"] for error in batch["errors"]}
        assert codes == {1: "library_failed", 2: "id_out_of_range"}

    run(scenario, CpuEngine())


@pytest.mark.parametrize("text", ["éa", "xa"])
def test_spans_behind_the_end_of_a_text_are_refused(text):
    """The library counts each letter of the suffix of a byte without a token as a place."""
    tokenizer = Tokenizer.from_str(encoded(LONG_BYTES).decode())
    beyond = tokenizer.encode("ax").offsets
    assert beyond[-1][1] > 2

    async def scenario(client, _):
        await put(client, LONG_BYTES)
        for shown in ("ax", "aé"):
            body = {"vocabulary": "mine", "text": shown}
            answer = await client.post("/v1/encode", json=body)
            assert answer.json()["ids"] == tokenizer.encode(shown).ids
            for unit in ("bytes", "codepoints", "utf16"):
                answer = await client.post("/v1/encode", json=body | {"return_offsets": unit})
                assert refused(answer) == (422, "no_offsets", "/text")
        body = {"vocabulary": "mine", "texts": ["a", "ax", text], "return_offsets": "codepoints"}
        batch = (await client.post("/v1/encode/batch", json=body)).json()
        assert [error["row"] for error in batch["errors"]] == [1]
        for row, kept in ((0, "a"), (2, text)):
            assert batch["offsets"][row] == [list(s) for s in tokenizer.encode(kept).offsets]

    run(scenario, CpuEngine())


def test_a_file_on_which_the_library_panics_is_a_wrong_file():
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    token = {"id": 2, "content": "é", "normalized": True, **flags}
    steps = {"type": "Sequence", "normalizers": [EMPTY_MATCHES, ACCENTS]}
    content = document({"a": 0, "b": 1}, [], normalizer=steps, added_tokens=[token])
    with pytest.raises(VocabularyError, match="cannot load it: index out of bounds"):
        read_tokenizer(encoded(content).decode())


def without_unknown(kind: str) -> Tokenizer:
    """A tokenizer that the library trains by its defaults, without an unknown token."""
    model, trainer = {
        "Unigram": (models.Unigram(), trainers.UnigramTrainer(vocab_size=60, show_progress=False)),
        "WordPiece": (
            models.WordPiece(unk_token="[UNK]"),
            trainers.WordPieceTrainer(vocab_size=60, show_progress=False, special_tokens=[]),
        ),
        "WordLevel": (
            models.WordLevel(unk_token="[UNK]"),
            trainers.WordLevelTrainer(show_progress=False, special_tokens=[]),
        ),
    }[kind]
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 50, trainer)
    return made


@pytest.mark.parametrize("kind", ["Unigram", "WordPiece", "WordLevel"])
def test_a_vocabulary_without_an_unknown_token_refuses_the_rows_that_need_one(kind: str) -> None:
    """It was refused as a whole at its upload, though the library reads it and people use it."""
    library = without_unknown(kind)
    vocabulary = read_vocabulary({"tokenizer.json": library.to_str().encode()})
    engine = CpuEngine()
    assert engine.load(vocabulary).self_test.num_different == 0
    texts = ["the fox", "Z \u2603", "quick dog", "the Z"]
    for spans in (False, True):
        options = EncodeOptions(spans=spans)
        encoded = engine.encode(vocabulary, Batch(texts, options=options))
        assert {row: error.code for row, error in encoded.errors.items()} == {
            1: "no_unknown_token",
            3: "no_unknown_token",
        }
        assert [encoded.row(row).tolist() for row in (0, 2)] == [
            library.encode(texts[row]).ids for row in (0, 2)
        ]
        assert not len(encoded.row(1))
