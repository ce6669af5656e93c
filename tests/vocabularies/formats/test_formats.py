"""Readers and writers, format by format, on small documents and real lists."""

from __future__ import annotations

import base64
import functools
import json
from dataclasses import replace

import pytest
from tokenizers import Tokenizer

from service.engines.cpu.engine import CpuEngine
from tests.support.data_files import data_bytes
from tests.support.inputs.tokenizer_documents import ABC, BYTES, added, document, encoded
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.errors import VocabularyError
from vocabularies.formats import (
    FORMATS,
    WRITABLE_FORMATS,
    read_vocabulary,
    read_with_notes,
    vocabulary_files,
    write_vocabulary,
)
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.formats.tiktoken.rank_merges import derive_merges
from vocabularies.formats.word_lists import published_rules as heads
from vocabularies.formats.word_lists.kmer_config import from_pretrained, save_pretrained
from vocabularies.formats.word_lists.vocab_files import all_kmers
from vocabularies.model.types import Bpe, Characters, Kmers, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.reference import tokenizer

DNABERT1_3MER = "dna_vocab/dnabert1/vocab_3mer.txt"
DNABERT1_6MER = "dna_vocab/dnabert1/vocab_6mer.txt"
NT_V1 = "dna_vocab/nt/nt_v1_vocab.txt"
NT_V2 = "dna_vocab/nt/nt_v2_vocab.txt"
HYENADNA = "dna_vocab/char/hyenadna_caduceus_vocab.json"
MTDNA6 = "dna_vocab/mtdna6/vocab.json"
LISTS = (DNABERT1_3MER, DNABERT1_6MER, NT_V1, NT_V2, HYENADNA, MTDNA6)


@functools.cache
def real(path: str) -> Vocabulary:
    """Read the vocabulary of a data file, its format detected from the content."""
    return read_vocabulary({"upload": data_bytes(path)})


def test_the_last_step_of_a_tokens_own_run_is_its_pair():
    words = [*"abcd", "ab", "abc", "bca", "cd", "abcd", "da", "dada"]
    ranks = {word.encode(): rank for rank, word in enumerate(words)}
    pairs, unreachable = derive_merges(ranks)
    assert pairs == [
        (b"a", b"b"),
        (b"ab", b"c"),
        (b"c", b"d"),
        (b"abc", b"d"),
        (b"d", b"a"),
        (b"da", b"da"),
    ]
    assert unreachable == [b"bca"]


def test_a_token_may_need_parts_of_higher_rank():
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"abc": 3, b"ab": 4}
    assert derive_merges(ranks) == ([(b"ab", b"c"), (b"a", b"b")], [])


@pytest.mark.parametrize("path", LISTS)
def test_a_list_comes_back_from_every_format_that_takes_it(path):
    vocabulary = real(path)
    for format in ("vocab.txt", "vocab.json", "kmer", "canonical"):
        assert read_vocabulary(write_vocabulary(vocabulary, format)) == vocabulary, format
    for format in ("tokenizer.json", "tiktoken"):
        with pytest.raises(VocabularyError, match="model"):
            write_vocabulary(vocabulary, format)


def test_real_lists_get_the_rule_of_their_model():
    dnabert = real(DNABERT1_6MER).model
    assert dnabert == Kmers(6, 5, 1, letters="ATCG", whitespace="words", max_piece_tokens=510)
    assert (real(DNABERT1_6MER).prefix, real(DNABERT1_6MER).suffix) == ((2,), (3,))
    letters = tuple(zip("ATCGN", range(4102, 4107), strict=True))
    assert real(NT_V2).model == Kmers(
        6, 6, 0, "ATCG", 6, "run", letters, remainder="letters", whitespace="skip"
    )
    assert (real(NT_V2).prefix, real(NT_V2).suffix) == ((3,), ())
    assert real(NT_V2).roles == {"unk": 0, "pad": 1, "mask": 2, "cls": 3}
    assert [token.special for token in real(NT_V2).special_tokens] == [True] * 4 + [False] * 2
    assert real(MTDNA6).model == Kmers(6, 6, 3, case="upper")
    assert not any(token.matched for token in real(MTDNA6).special_tokens)
    assert real(HYENADNA).model == Characters(
        tuple(zip("ACGTN", range(7, 12), strict=True)), unknown_id=6
    )
    assert (real(HYENADNA).suffix, real(HYENADNA).padding_side) == ((1,), "left")
    reserved = SpecialToken("[RESERVED]", 5, special=False, matched=False)
    assert [t for t in real(HYENADNA).special_tokens if not t.matched] == [reserved]


def test_the_order_of_the_letters_does_not_decide_about_the_rule():
    for head, tail in ((heads.DNABERT1, ""), (heads.NT_V1, "ACGT"), (heads.NT_V2, "ACGTN")):
        swapped, published = (
            read_vocabulary({"vocab.txt": "\n".join([*head, *all_kmers(o, 3), *tail]).encode()})
            for o in ("ACGT", "ATCG")
        )
        assert isinstance(swapped.model, Kmers) and swapped.model.letters == "ACGT"
        assert replace(swapped.model, letters="ATCG") == published.model
        assert (swapped.prefix, swapped.suffix) == (published.prefix, published.suffix)
        assert swapped.prefix
        assert swapped.special_tokens == published.special_tokens
    five = "\n".join([*heads.DNABERT1, *all_kmers("ACGTN", 2)]).encode()
    assert read_vocabulary({"vocab.txt": five}).prefix == ()  # No size that was published.


def test_any_list_of_all_kmers_is_read_at_every_base():
    content = "\n".join(["<pad>", "<unk>", *all_kmers("TGCA", 2), "<mask>"]).encode()
    vocabulary = read_vocabulary({"vocab.txt": content})
    assert vocabulary.model == Kmers(2, 2, 1, letters="TGCA")
    assert vocabulary.roles == {"pad": 0, "unk": 1, "mask": 18}
    shifted = {word: i + 7 for i, word in enumerate(["[UNK]", *all_kmers("AC", 3)])}
    vocabulary = read_vocabulary({"vocab.json": json.dumps(shifted).encode()})
    assert vocabulary.model == Kmers(3, 8, 7, letters="AC")
    assert vocabulary.tokens[:8] == (None,) * 7 + (b"[UNK]",)


def test_a_kmer_config_needs_only_k():
    assert read_vocabulary({"vocab_config.json": b'{"model_type": "kmer", "k": 6}'}) == real(MTDNA6)


def test_a_kmer_config_says_every_rule():
    config = {
        "model_type": "kmer",
        "transformers_version": "5.0",
        "k": 4,
        "letters": "ATCG",
        "stride": 4,
        "frame": "run",
        "remainder": "letters",
        "case": "keep",
        "whitespace": "skip",
        "letter_ids": {"A": 260, "T": 261, "C": 262, "G": 263, "N": 264},
        "special_tokens": ["<unk>", {"content": "<pad>", "id": 265}],
        "first_kmer_id": 1,
        "end_token_ids": [265],
        "pad_token_id": 265,
        "unk_token_id": 0,
        "padding_side": "left",
        "vocab_size": 300,
    }
    vocabulary = read_vocabulary({"folder/vocab_config.json": json.dumps(config).encode()})
    letter_ids = tuple(zip("ATCGN", range(260, 265), strict=True))
    assert vocabulary.model == Kmers(
        4, 1, 0, "ATCG", 4, "run", letter_ids, remainder="letters", whitespace="skip"
    )
    assert (len(vocabulary), vocabulary.suffix) == (300, (265,))
    assert (vocabulary.roles, vocabulary.padding_side) == ({"pad": 265, "unk": 0}, "left")
    assert read_vocabulary(write_vocabulary(vocabulary, "kmer")) == vocabulary


def test_a_pretrained_folder_comes_back(tmp_path):
    save_pretrained(real(MTDNA6), tmp_path / "vocabulary")
    assert from_pretrained(tmp_path / "vocabulary") == real(MTDNA6)
    [file] = (tmp_path / "vocabulary").iterdir()
    assert file.name == "vocab_config.json"
    listed = data_bytes(MTDNA6)
    folder = {file.name: file.read_bytes(), "vocab.json": listed}
    assert read_vocabulary(folder) == real(MTDNA6)
    with pytest.raises(VocabularyError, match="other tokens"):
        read_vocabulary(folder | {"vocab.json": data_bytes(HYENADNA)})


@pytest.mark.parametrize("name", ["tokenizer.json", "body"])
def test_a_tokenizer_json_is_parsed_once(name, monkeypatch):
    parsed = []

    def parse_json(data):
        parsed.append(data)
        return json.loads(data)

    monkeypatch.setattr(vocabulary_files, "parse_json", parse_json)
    data = encoded(document({"a": 0}, [], added_tokens=[added("<x>", 7)], padding={"length": 9}))
    vocabulary, notes = read_with_notes({name: data})
    assert len(parsed) == 1
    assert vocabulary.special_tokens[0].id == 1
    assert [note.split()[0] for note in notes] == ["added", "padding"]


def test_the_format_is_found_by_content_where_the_name_says_nothing():
    dnabert = data_bytes(DNABERT1_3MER)
    assert read_vocabulary({"upload": dnabert}) == real(DNABERT1_3MER)
    assert read_vocabulary({"upload": encoded(ABC)}).kind == "bpe"
    assert read_vocabulary({"upload": b'{"model_type": "kmer", "k": 6}'}) == real(MTDNA6)
    assert read_vocabulary({"upload": data_bytes(MTDNA6)}) == real(MTDNA6)
    canonical = write_vocabulary(real(MTDNA6), "canonical")["vocabulary.canonical"]
    assert read_vocabulary({"upload": canonical}) == real(MTDNA6)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"byte_fallback": True}, "byte_fallback"),
        ({"end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
        ({"normalizer": {"type": "NFKC"}}, "NFKC"),
        ({"normalizer": {"type": "Prepend", "prepend": "▁"}}, "Prepend"),
        ({"pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}}, "Metaspace"),
        ({"pre_tokenizer": {"type": "Punctuation", "behavior": "Isolated"}}, "Punctuation"),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "NFC"}, {"type": "Nmt"}],
                }
            },
            "normalizer.normalizers[1]: Nmt",
        ),
        (
            {
                "normalizer": {
                    "type": "Replace",
                    "pattern": {"Regex": r"(a)\1"},
                    "content": "b",
                }
            },
            "normalizer: ",
        ),
        # One character that only the added token spells: the library never takes it for a symbol.
        ({"added_tokens": [added("x", 5, single_word=True)]}, "'x'"),
        # A whole pretoken where merges are ignored, and not in model.vocab.
        ({"added_tokens": [added("cab", 5)], "ignore_merges": True}, "'cab'"),
        (
            {"post_processor": {"type": "TemplateProcessing", "single": [], "special_tokens": {}}},
            "0",
        ),
    ],
)
def test_files_that_no_model_represents_exactly_become_upstream(fields, reason):
    content = document(ABC["model"]["vocab"], ABC["model"]["merges"], **fields)
    content["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert isinstance(vocabulary.model, Upstream)
    assert reason in vocabulary.model.reason
    assert vocabulary.tokens[:5] == (b"a", b"b", b"c", b"ab", b"abc")
    assert json.loads(tokenizer_json(vocabulary)) == content | {"truncation": None}
    assert read_vocabulary(write_vocabulary(vocabulary, "canonical")) == vocabulary


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        (
            {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
            (b"a", b"[UNK]"),
        ),
        (
            {
                "type": "WordPiece",
                "vocab": {"[UNK]": 0, "a": 1, "##b": 2},
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
            },
            (b"[UNK]", b"a", b"##b"),
        ),
        (
            {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁a", -1.25]]},
            (b"<unk>", "▁a".encode()),
        ),
    ],
)
def test_models_that_are_not_bpe_become_upstream(model, tokens):
    content = document({}, []) | {"model": model}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert isinstance(vocabulary.model, Upstream)
    assert model["type"] in vocabulary.model.reason
    assert vocabulary.tokens == tokens
    assert (
        vocabulary.roles["unk"]
        == [b"[UNK]" in tokens and tokens.index(b"[UNK]"), 0][b"[UNK]" not in tokens]
    )
    text = "a b"
    library = Tokenizer.from_str(tokenizer_json(vocabulary))
    assert library.encode(text).ids == Tokenizer.from_str(json.dumps(content)).encode(text).ids


@pytest.mark.parametrize(
    ("post_processor", "prefix", "suffix", "roles"),
    [
        (None, (), (), {}),
        ({"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}, (), (), {}),
        (
            {"type": "BertProcessing", "sep": ["c", 2], "cls": ["b", 1]},
            (1,),
            (2,),
            {"cls": 1, "sep": 2},
        ),
        (
            {
                "type": "Sequence",
                "processors": [
                    {"type": "ByteLevel", "trim_offsets": False},
                    {
                        "type": "RobertaProcessing",
                        "sep": ["c", 2],
                        "cls": ["b", 1],
                        "trim_offsets": True,
                        "add_prefix_space": False,
                    },
                ],
            },
            (1,),
            (2,),
            {"cls": 1, "sep": 2},
        ),
        (
            {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "x", "type_id": 0}},
                    {"SpecialToken": {"id": "c", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [],
                "special_tokens": {
                    "x": {"id": "x", "ids": [3, 4], "tokens": ["ab", "abc"]},
                    "c": {"id": "c", "ids": [2], "tokens": ["c"]},
                },
            },
            (3, 4, 2),
            (),
            {},
        ),
    ],
)
def test_begin_and_end_tokens_come_from_the_post_processor(post_processor, prefix, suffix, roles):
    content = {**ABC, "post_processor": post_processor}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert (vocabulary.prefix, vocabulary.suffix, vocabulary.roles) == (prefix, suffix, roles)
    written = tokenizer_json(vocabulary)
    assert Tokenizer.from_str(written).encode("abc").ids == [*prefix, 4, *suffix]
    assert read_vocabulary({"tokenizer.json": written.encode()}) == vocabulary


def test_normalizers_are_read_as_real_files_write_them():
    steps = [
        {"type": "NFC"},
        {"type": "Sequence", "normalizers": []},
        {"type": "Lowercase"},
        {"type": "Strip", "strip_left": True, "strip_right": False},
        {"type": "Replace", "pattern": {"String": "b"}, "content": "a"},
        {"type": "Replace", "pattern": {"Regex": "N{10,}"}, "content": "-"},
    ]
    content = {**ABC, "normalizer": {"type": "Sequence", "normalizers": steps}}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.normalizers == (
        Normalizer("nfc"),
        Normalizer("lowercase"),
        Normalizer("strip", left=True, right=False),
        Normalizer("replace", "b", "a"),
        Normalizer("replace_regex", "N{10,}", "-"),
    )
    written = json.loads(tokenizer_json(vocabulary))["normalizer"]
    assert written["normalizers"] == [step for step in steps if step["type"] != "Sequence"]


def test_a_token_outside_the_byte_alphabet_keeps_its_own_bytes_and_is_never_found():
    vocab = BYTES | {"中": 256, "中!": 257, "!!": 258}
    content = document(vocab, ["中 !", "! !"], byte_level=True)
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.tokens[256:] == ("中".encode(), "中!".encode(), b"!!")
    assert vocabulary.special_tokens[0] == SpecialToken("中", 256, special=False, matched=False)
    assert vocabulary.model.merges == ((33, 33),)
    again = Tokenizer.from_str(tokenizer_json(vocabulary))
    expected = Tokenizer.from_str(json.dumps(content))
    assert again.encode("中!!").ids == expected.encode("中!!").ids == [*"中".encode(), 258]


def test_of_a_merge_that_stands_twice_the_last_counts():
    vocab = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}
    content = document(vocab, ["a b", "b c", "a b"])
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.model.merges == ((1, 2), (0, 1))
    assert Tokenizer.from_str(json.dumps(content)).encode("abc").ids == [0, 4]
    assert Tokenizer.from_str(tokenizer_json(vocabulary)).encode("abc").ids == [0, 4]


def test_a_usual_content_that_a_merge_makes_is_no_special_token_of_the_gpt2_pair():
    """`<s>` is such a token in Qwen 2.5's list; here `</s>` and `<|endoftext|>` are real ones."""
    strings = ["<", "s", ">", "/", "s>", "<s>", "</s>", "<|endoftext|>"]
    vocab = {string: token_id for token_id, string in enumerate(strings)}
    files = {"vocab.json": json.dumps(vocab).encode(), "merges.txt": b"s >\n< s>\n"}
    vocabulary = read_vocabulary(files, pretokenizer="none")
    assert {token.id for token in vocabulary.special_tokens} == {6, 7}
    assert vocabulary.roles == {"eos": 6}
    given = read_vocabulary(files, pretokenizer="none", special_tokens={"<s>": 5})
    assert [token.id for token in given.special_tokens] == [5]
    text = "<s></s><|endoftext|>"
    assert tokenizer.encode(vocabulary, text, EncodeOptions()).ids == [5, 6, 7]
    plain = tokenizer.encode(vocabulary, text[:7], EncodeOptions(special="plain"))
    assert plain.ids == [5, 0, 3, 4]


def test_tokens_with_blanks_are_merged_as_pairs():
    vocab = {"a": 0, " ": 1, "b": 2, "a ": 3, "a b": 4}
    vocabulary = read_vocabulary(
        {"tokenizer.json": encoded(document(vocab, [["a", " "], ["a ", "b"]]))}
    )
    written = tokenizer_json(vocabulary)
    assert Tokenizer.from_str(written).encode("a bb").ids == [4, 2]
    assert read_vocabulary({"tokenizer.json": written.encode()}) == vocabulary


@pytest.mark.parametrize("unknown", ["", "<|endoftext|>"])
def test_an_unknown_token_that_no_text_can_ask_for_need_not_be_listed(unknown):
    """All bytes are tokens; the library looks for its id where one is not."""
    content = document(BYTES, [], byte_level=True, unk_token=unknown, fuse_unk=True)
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert isinstance(vocabulary.model, Bpe)
    assert (vocabulary.model.unknown_id, vocabulary.model.fuse_unknown) == (None, False)
    text = "é\x00中 \U0010ffff"
    theirs = Tokenizer.from_str(encoded(content).decode()).encode(text).ids
    assert tokenizer.encode(vocabulary, text).ids == theirs


def test_all_flags_of_added_tokens_are_kept():
    flags = {"single_word": True, "lstrip": True, "rstrip": True, "normalized": True}
    tokens = [added("<z>", 5, special=False, **flags), added("<y>", 6)]
    content = {**ABC, "added_tokens": tokens, "normalizer": {"type": "Lowercase"}}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.special_tokens == (
        SpecialToken("<z>", 5, special=False, **flags),
        SpecialToken("<y>", 6),
    )
    assert json.loads(tokenizer_json(vocabulary))["added_tokens"] == tokens


def test_character_level_splitting_rules_are_written_without_the_byte_alphabet():
    vocabulary = Vocabulary(
        tokens=(b"a", b" ", b"1", b"aa", "é".encode()), model=Bpe(((0, 0),), byte_level=False)
    )
    for rule in ("gpt2", "llama3", "whitespace", "none", "isolate:1"):
        changed = Vocabulary(vocabulary.tokens, vocabulary.model, pretokenizer=rule)
        written = tokenizer_json(changed)
        assert read_vocabulary({"tokenizer.json": written.encode()}) == changed
        expected = {"whitespace": [3, 4, 3]}.get(rule, [3, 4, 1, 3])
        assert Tokenizer.from_str(written).encode("aaé aa").ids == expected, rule


@pytest.mark.parametrize(
    ("vocabulary", "format", "where"),
    [
        (Vocabulary((b"\xff",), Bpe((), byte_level=False)), "tokenizer.json", "tokens[0]"),
        (
            Vocabulary((b"ab", b"a", b"ab"), Bpe(()), (SpecialToken("ab", 2),)),
            "tokenizer.json",
            "tokens[2]",
        ),
        (Vocabulary((b"a",), Bpe(())), "tiktoken", "tokens"),
        (Vocabulary((b"a",), Bpe((), byte_level=False)), "tiktoken", "model"),
        (Vocabulary((b"a",), Bpe(()), normalizers=(Normalizer("nfc"),)), "tiktoken", "normalizers"),
        (Vocabulary((b"a",), Bpe(()), prefix=(0,)), "tiktoken", "prefix"),
        (Vocabulary((b"a",), Bpe(()), prefix=(0,)), "vocab.json", "prefix"),
        (Vocabulary((b"a",), Bpe((), ignore_merges=True)), "vocab.json", "model"),
        (Vocabulary((b"a",), Bpe(()), decoder="blanks"), "vocab.json", "decoder"),
        (Vocabulary((b"a",), Bpe(()), decoder="blanks"), "tiktoken", "decoder"),
        (Vocabulary((b"a",), Bpe((), byte_level=False)), "vocab.txt", "model"),
        (Vocabulary((b"a",), Bpe(())), "kmer", "model"),
        (Vocabulary((b"a", b"b"), Characters((("a", 0),), 1)), "vocab.txt", "model"),
        (Vocabulary((b"a", b"b"), Characters((("a", 0),), 1)), "kmer", "tokens"),
        (Vocabulary((b"a", None, b"?"), Characters((("a", 0),), 2)), "vocab.txt", "tokens[1]"),
        (Vocabulary((b"a",), Bpe(())), "zip", "format"),
    ],
)
def test_a_format_that_cannot_mean_the_same_is_refused(vocabulary, format, where):
    with pytest.raises(VocabularyError) as raised:
        write_vocabulary(vocabulary, format)
    assert raised.value.findings[0].where == where


def test_merges_in_another_order_than_the_ids_are_no_rank_file():
    tokens = (*(bytes([byte]) for byte in range(256)), b"ab", b"cd")
    in_order = Vocabulary(tokens, Bpe(((97, 98), (99, 100))))
    content = write_vocabulary(in_order, "tiktoken")
    assert read_vocabulary(content, pretokenizer="none") == in_order
    with pytest.raises(VocabularyError, match="order of the ids"):
        write_vocabulary(Vocabulary(tokens, Bpe(((99, 100), (97, 98)))), "tiktoken")


def test_formats_are_all_read_and_all_but_two_written():
    assert set(FORMATS) == {
        "sentencepiece",
        "tokenizer.json",
        "tiktoken",
        "tekken.json",
        "vocab.json",
        "vocab.txt",
        "kmer",
        "canonical",
    }
    assert set(FORMATS) - set(WRITABLE_FORMATS) == {"sentencepiece", "tekken.json"}


def test_an_empty_token_such_as_whispers_is_found_in_no_text_and_spells_nothing():
    content = document(BYTES | {"": 256, "ab": 257}, ["a b"], byte_level=True)
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.tokens[256:] == (b"", b"ab")
    assert vocabulary.special_tokens == (SpecialToken("", 256, special=False, matched=False),)
    library = Tokenizer.from_str(json.dumps(content))
    for text in ("", "ab", "a b\u0120ab"):
        assert tokenizer.encode(vocabulary, text).ids == library.encode(text).ids
    decoded = tokenizer.decode(vocabulary, [257, 256, 97])
    assert decoded.decode() == library.decode([257, 256, 97], skip_special_tokens=False)
    assert read_vocabulary(write_vocabulary(vocabulary, "tokenizer.json")) == vocabulary
    inverse = read_vocabulary({"tokenizer.json": encoded(content)}, decoder="inverse")
    assert tokenizer.decode(inverse, [257, 256, 97]) == b"aba"
    assert read_vocabulary(write_vocabulary(inverse, "vocab.json")) == inverse
    ranks = b"".join(b"%s %d\n" % (base64.b64encode(bytes([i])), i) for i in range(256))
    ranks += b"= 256\nYWI= 257\n"
    assert read_vocabulary({"multilingual.tiktoken": ranks}, pretokenizer="gpt2") == inverse


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ({"unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.5]]}, "Unigram"),
        (
            {
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 9,
                "vocab": {"[UNK]": 0, "a": 1},
            },
            "WordPiece",
        ),
        ({"vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}, "WordLevel"),
    ],
)
def test_a_model_of_2020_that_does_not_name_its_type_is_known_by_its_fields(model, kind):
    content = document({}, []) | {"model": model}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert kind in vocabulary.model.reason
    library = Tokenizer.from_str(json.dumps(content))
    encodings = CpuEngine().encode(vocabulary, Batch(["a", "b"]))
    assert encodings.ids.tolist() == [*library.encode("a").ids, *library.encode("b").ids]


ESM = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>"
)


@pytest.mark.parametrize(
    ("text", "ids"),  # As transformers' EsmTokenizer gives them.
    [
        ("MKTV", [20, 15, 11, 7]),
        ("MKJJV", [20, 15, 3, 7]),
        ("mktv", [3]),
        ("J J<mask>J", [3, 3, 32, 3]),
        ("MK TV\n", [20, 15, 11, 7]),
        ("MK\x1cTV", [20, 15, 11, 7]),
        ("A.-B*", [5, 29, 30, 25, 3]),
        ("M<null_1><ma", [20, 31, 3]),
        ("", []),
    ],
)
def test_a_protein_list_of_esm_is_read_as_its_tokenizer_reads_it(text, ids):
    vocabulary = read_vocabulary({"vocab.txt": "\n".join(ESM.split()).encode()})
    assert tokenizer.encode(vocabulary, text).ids == [0, *ids, 2]
    assert CpuEngine().encode(vocabulary, Batch([text])).ids.tolist() == [0, *ids, 2]
    assert vocabulary.special_ids == {0, 1, 2, 3, 32}
    assert read_vocabulary(write_vocabulary(vocabulary, "tokenizer.json")) == vocabulary
