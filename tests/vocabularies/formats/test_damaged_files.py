"""Every damaged, foreign or hostile file is refused with the place and the reason."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile

import pytest
from tokenizers import Tokenizer

from tests.support.inputs.tokenizer_documents import ABC, added, document, encoded
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary, read_with_notes
from vocabularies.model.types import Upstream
from vocabularies.reference import tokenizer

WORDS = {"a": 0, "b": 1, "ab": 2}
ALL_BYTES = [bytes([byte]) for byte in range(256)]


def findings(files: dict[str, bytes], **arguments: object) -> list[tuple[str, str]]:
    with pytest.raises(VocabularyError) as raised:
        read_vocabulary(files, **arguments)
    return [(finding.where, finding.message) for finding in raised.value.findings]


def replacing(pattern: str, content: str) -> dict[str, object]:
    step = {"type": "Replace", "pattern": {"String": pattern}, "content": content}
    return {"normalizer": step}


def bert(cls: str, token_id: int) -> dict[str, object]:
    return {"cls": [cls, token_id], "sep": ["b", 1]}


def tar() -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("tokenizer.json"))
    return target.getvalue()


def zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("tokenizer.json", "{}")
    return target.getvalue()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("gzip", gzip.compress(b"{}", mtime=0)),
        ("xz", lzma.compress(b"{}")),
        ("lzma", lzma.compress(b"{}", format=lzma.FORMAT_ALONE)),
        ("bzip2", bz2.compress(b"{}")),
        ("zip", zipped()),
        ("tar", tar()),
        *(("pickle", pickle.dumps({"a": 1}, protocol)) for protocol in (2, 3, 4, 5)),
        ("zstd", b"\x28\xb5\x2f\xfd\x00"),
    ],
)
@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "model.tiktoken"])
def test_archives_and_pickles_are_refused_by_their_first_bytes(kind, data, name):
    [(where, message)] = findings({name: data})
    assert where == name
    assert message.startswith("archives and pickles are not supported") and kind in message


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ({"a": 0, "b": 1, "a</w>": 2, "b</w>": 3, "ab</w>": 4}, "ends in </w>"),
        ({"a": 0, "b": 1, "▁": 2, "▁a": 3, "ab": 4}, "is not in GPT-2's byte alphabet"),
    ],
)
def test_bpe_that_is_not_byte_level_is_not_read_as_it(vocab, message):
    merges = b"a b</w>\n" if "ab</w>" in vocab else "▁ a\na b\n".encode()
    [(where, reason)] = findings({"vocab.json": encoded(vocab), "merges.txt": merges})
    assert where == "vocab.json"
    assert message in reason and "send tokenizer.json" in reason


@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer_config.json", {"do_lower_case": True}), ("x", {"tokenizer_class": "T", "n": 1})],
)
def test_a_tokenizer_config_alone_is_called_by_its_name(name, content):
    [(where, message)] = findings({name: encoded(content)})
    assert where == "files"
    assert message.startswith("a tokenizer_config.json has no ids")


@pytest.mark.parametrize("odd", [None, True, 1, [], {}, [{}], {"a": 0}])
@pytest.mark.parametrize("field", ["type", "pattern", "behavior", "invert"])
def test_a_split_with_a_field_of_another_kind_is_no_rule_of_ours_and_no_crash(field, odd):
    split = {"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated", "invert": False}
    content = document(WORDS, [], pre_tokenizer=split | {field: odd})
    try:
        model = read_vocabulary({"tokenizer.json": encoded(content)}).model
    except VocabularyError as error:
        assert [finding.where for finding in error.findings] == ["pre_tokenizer"]
    else:
        assert isinstance(model, Upstream) or field == "invert"


def test_an_archive_beside_a_good_file_is_refused_too():
    files = {"vocab.json": encoded(WORDS), "merges.txt": gzip.compress(b"a b\n")}
    assert findings(files)[0][0] == "merges.txt"


def test_a_truncated_tokenizer_json_is_refused_with_line_and_column():
    content = json.dumps(ABC, indent=1).encode()
    cut = content[: content.index(b'"ab c"')]
    [(where, message)] = findings({"tokenizer.json": cut})
    line = cut.count(b"\n") + 1
    assert where.startswith(f"line {line} column ")
    assert "the file ends there" in message


@pytest.mark.parametrize(
    ("data", "where", "message"),
    [
        (b'{"model": {"a": 1, "a": 2}}', "line 1", "has the key 'a' twice"),
        (b'{"model": NaN}', "line 1", "NaN is not JSON"),
        (b"[" * 100_000, "line 1 column 2", ""),
        (b'{"model":' + b"[" * 90_000, "line 1", "nested more than"),
        (b'{"model":' + b"[" * 90 + b"]" * 90 + b"}", "line 1", "nested more than"),
        (b'{"x": "\xff"}', "line 1", "not UTF-8"),
        (b"{\n\n\xff}", "line 3", "not UTF-8"),
        (b'{"model": [1]}', "model", "which model is an object"),
        (b"[]", "model", "which model is an object"),
        (b'{"model": ' + b"9" * 5000 + b"}", "line 1", ""),
    ],
)
def test_broken_json_is_refused_with_its_place(data, where, message):
    [(place, reason)] = findings({"tokenizer.json": data}, format="tokenizer.json")
    assert place.startswith(where.split(" column")[0])
    assert message in reason


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            document(WORDS, ["a b", "a c", "b", "a b c"]),
            ["model.merges[1]", "model.merges[2]", "model.merges[3]"],
        ),
        (document(WORDS, ["a b", ["a", 3], ["b", "a"]]), ["model.merges[1]", "model.merges[2]"]),
        (document(WORDS, "a b"), ["model.merges"]),
        (document({"a": 0, "b": 0, "c": -1}, []), ["model.vocab['b']", "model.vocab['c']"]),
        (document({"a": 0, "b": True, "c": "1"}, []), ["model.vocab['b']", "model.vocab['c']"]),
        (document({"a": 4_000_000_000}, []), ["model.vocab['a']"]),
        (document({"\ud800": 0}, []), ["model.vocab['\\ud800']"]),
        (document(WORDS, [["a", "\udc00"]]), ["model.merges[0][1]"]),
        (document(WORDS, [], decoder={"type": "\ud800"}), ["decoder.type"]),
        (document(WORDS, [], **replacing("\ud800", "b")), ["normalizer.pattern.String"]),
        (document(WORDS, [], **replacing("a", "b\ud83d")), ["normalizer.content"]),
        (document(WORDS, [], end_of_word_suffix="\ud800"), ["model.end_of_word_suffix"]),
        (document(WORDS, [], added_tokens=[added("\ude00", 3)]), ["added_tokens[0].content"]),
        (ABC | {"\ud800": 1}, ["['\\ud800']"]),
        (document({}, []), ["model.vocab"]),
        (document(WORDS, [], dropout=0.1), ["model.dropout"]),
        (document(WORDS, [], version="2.0"), ["version"]),
        (document(WORDS, [], version=None), ["version"]),
        (
            document(WORDS, [], post_processor={"type": "BertProcessing"} | bert("a", True)),
            ["post_processor"],
        ),
        (document(WORDS, [], continuing_subword_prefix=7), ["model.continuing_subword_prefix"]),
        (document(WORDS, ["a b"], continuing_subword_prefix="##"), ["model.merges[0]"]),
        # The library cuts é in two for this one, and the message about it ends the process.
        (document({"é": 0, "éé": 1}, ["é é"], continuing_subword_prefix="@"), ["model.merges[0]"]),
        (document(WORDS, [], unk_token="[UNK]"), ["model.unk_token"]),
        (document(WORDS, [], unk_token="[UNK]", byte_level=True), ["model.unk_token"]),
        (document(WORDS, [], added_tokens=[added("b", True)]), ["added_tokens[0]"]),
        (document(WORDS, [], fuse_unk="yes"), ["model.fuse_unk"]),
        (
            document(
                WORDS, [], added_tokens=[{"id": 3}, added("x", 9), added("a", 1), added("", 3)]
            ),
            ["added_tokens[0]", "added_tokens[3]"],  # Others have the library's ids.
        ),
        (
            document(WORDS, [], added_tokens=[added("<x>", 3), added("<x>", 3)]),
            ["added_tokens[1]"],
        ),
        (document(WORDS, [], added_tokens=[added("<x>", 3, lstrip=1)]), ["added_tokens[0]"]),
        (document(WORDS, [], added_tokens={}), ["added_tokens"]),
        (document(WORDS, [], normalizer=5), ["normalizer"]),
        (document(WORDS, [], normalizer={"type": "Sequence"}), ["normalizer.normalizers"]),
        (document(WORDS, [], pre_tokenizer={"type": "Sequence"}), ["pre_tokenizer.pretokenizers"]),
        (document(WORDS, [], pre_tokenizer=["ByteLevel"]), ["pre_tokenizer"]),
        (document(WORDS, [], post_processor={"type": "BertProcessing"}), ["post_processor"]),
        (
            document(
                WORDS,
                [],
                post_processor={
                    "type": "TemplateProcessing",
                    "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}],
                    "special_tokens": {},
                },
            ),
            ["post_processor.special_tokens['x']"],
        ),
        (
            document(
                WORDS,
                [],
                post_processor={"type": "BertProcessing", "sep": ["x", 9], "cls": ["a", 0]},
            ),
            ["suffix[0]", "roles.sep"],
        ),
    ],
)
def test_all_faults_of_a_tokenizer_json_are_found_with_their_places(content, expected):
    assert [where for where, _ in findings({"tokenizer.json": encoded(content)})] == expected


def charsmap(data: bytes) -> dict[str, str]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def normalizers(*steps: dict) -> dict:
    return {"normalizer": {"type": "Sequence", "normalizers": [*steps]}}


TWICE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BLANKS = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
PREPEND = {"type": "Prepend", "prepend": "a" * 100}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "a"}}] * 1001 + [{"Sequence": {"id": "A"}}],
    "special_tokens": {"a": {"id": "a", "ids": [0], "tokens": ["a"]}},
}
BOMBS = [
    (normalizers(*[TWICE] * 9), "normalizers[8]"),
    (normalizers(TWICE, {"type": "NFD"}, *[TWICE] * 8), "normalizer.normalizers[9]"),
    (normalizers(PREPEND, PREPEND), "normalizer.normalizers[1]"),
    (normalizers(*[{"type": "ByteLevel"}] * 9), "normalizer.normalizers[8]"),
    (
        normalizers({"type": "Replace", "pattern": {"Regex": "a?"}, "content": "b" * 256}),
        "normalizer.normalizers[0]",
    ),
    (normalizers(charsmap(b"\xff\xff\xff\xff" + bytes(40))), "normalizer.normalizers[0]"),
    (normalizers(charsmap(bytes(4) + b"a" * 257)), "normalizer.normalizers[0]"),
    (normalizers(charsmap(b"") | {"precompiled_charsmap": "?"}), "normalizer.normalizers[0]"),
    (
        {
            "byte_fallback": True,
            "decoder": {"type": "Sequence", "decoders": [TWICE, TWICE | {"content": "a" * 200}]},
        },
        "decoder.decoders[1]",
    ),
    ({"post_processor": TEMPLATE}, "prefix"),
    ({"added_tokens": [added("x" * 4097, 3)]}, "special_tokens[0]"),
]


@pytest.mark.parametrize(("fields", "where"), BOMBS)
def test_what_would_take_all_memory_or_no_end_is_refused(fields, where):
    files = {"tokenizer.json": encoded(document(WORDS, [], **fields))}
    assert [place for place, _ in findings(files)] == [where]


def test_the_same_is_read_within_its_bounds():
    template = TEMPLATE | {"single": TEMPLATE["single"][1:]}
    for fields in (
        normalizers(*[TWICE] * 8),
        normalizers(*[BLANKS] * 20),
        normalizers(*[BLANKS] * 20, {"type": "NFD"}),
        normalizers(*[{"type": "ByteLevel"}] * 8),
        normalizers(PREPEND, TWICE),
        normalizers(charsmap(bytes(4) + b"a" * 256)),
        {"post_processor": template},
        {"added_tokens": [added("x" * 4096, 3)]},
    ):
        read_vocabulary({"tokenizer.json": encoded(document(WORDS, [], **fields))})


def test_wordpiece_looks_into_words_of_a_thousand_letters_at_most():
    content = document(WORDS, [])
    for most in (1000, 1001):
        content["model"] = {
            "type": "WordPiece",
            "unk_token": "a",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": most,
            "vocab": WORDS,
        }
        files = {"tokenizer.json": encoded(content)}
        if most == 1000:
            assert isinstance(read_vocabulary(files).model, Upstream)
        else:
            assert [where for where, _ in findings(files)] == ["model.max_input_chars_per_word"]


def test_an_added_token_has_the_id_that_the_library_gives_it():
    tokens = [added("<x>", 7), added("a", 500), added("<y>", 4), added("<z>", 5)]
    content = document(WORDS, [], added_tokens=tokens)
    files = {"tokenizer.json": encoded(content)}
    library = Tokenizer.from_str(json.dumps(content))
    vocabulary, notes = read_with_notes(files)
    assert {token.content: token.id for token in vocabulary.special_tokens} == {
        token["content"]: library.token_to_id(token["content"]) for token in tokens
    }
    assert library.encode("<x>").ids == [3]  # Whatever the file says.
    (note,) = notes
    assert note.endswith("them: '<x>' 3 instead of 7, 'a' 0 instead of 500")
    content["added_tokens"] = [added("<x>", 7)]
    content["model"]["vocab"] = WORDS | {"<x>": 7}
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    assert vocabulary.token_string(7) == "<x>"
    assert Tokenizer.from_str(json.dumps(content)).encode("<x>").ids == [7]


def test_a_file_with_many_faults_names_a_hundred():
    content = document(WORDS, ["a b c"] * 5000)
    assert len(findings({"tokenizer.json": encoded(content)})) == 100


def ranks(*lines: bytes) -> bytes:
    whole = [base64.b64encode(token) + b" %d" % i for i, token in enumerate(ALL_BYTES)]
    return b"\n".join([*whole, *lines, b""])


@pytest.mark.parametrize(
    ("lines", "where", "message"),
    [
        ((b"YWI= 256", b"!!!= 257"), "line 258", "not a base64 token"),
        ((b"YWI= 256", b"YWI= 257"), "line 258", "the token is already in line 257"),
        ((b"YWI= 256", b"YWM= 256"), "line 258", "rank 256 is already in line 257"),
        ((b"YWI=",), "line 257", "not a base64 token"),
        ((b"YWI= 256 7",), "line 257", "not a base64 token"),
        ((b"YWI= -1",), "line 257", "not a base64 token"),
        ((b"YWI= 99999999999999999999",), "line 257", "not a base64 token"),
        ((b" 300",), "line 257", "not a base64 token"),
    ],
)
def test_every_wrong_line_of_a_rank_file_is_named(lines, where, message):
    [(place, reason)] = findings({"x.tiktoken": ranks(*lines)}, pretokenizer="gpt2")
    assert place == where
    assert message in reason


def test_a_rank_file_needs_its_rule_all_bytes_and_free_ids():
    assert "give pretokenizer=" in findings({"x.tiktoken": ranks()})[0][1]
    assert "similar: gpt2" in findings({"x": ranks()}, pretokenizer="gpt-2")[0][1]
    [(where, message)] = findings({"x": b"YQ== 0\nYg== 1\n"}, pretokenizer="gpt2")
    assert where == "ranks" and "no rank for the bytes [0, 1," in message
    arguments = {"pretokenizer": "gpt2", "special_tokens": {"<x>": 97}}
    [(where, message)] = findings({"x": ranks()}, **arguments)
    assert where == "special_tokens['<x>']" and "b'a'" in message
    [(where, _)] = findings({"x": ranks()}, pretokenizer="gpt2", id_offset=-1)
    assert where == "ids"
    [(where, _)] = findings({"x": ranks()}, pretokenizer="gpt2", special_tokens={"<x>": 2**40})
    assert where == "ids"
    shifted = read_vocabulary({"x": ranks()}, pretokenizer="gpt2", id_offset=1000)
    assert shifted.tokens[1097] == b"a" and shifted.tokens[999] is None


def test_tokens_too_long_to_derive_their_merges_are_refused():
    [(where, message)] = findings(
        {"x": ranks(base64.b64encode(b"a" * 40_000) + b" 256")}, pretokenizer="gpt2"
    )
    assert where == "tokens" and "the longest has 40000 bytes" in message


def test_a_special_token_that_ranks_could_take_for_a_pretoken_is_refused():
    # No merge reaches "abc", so a pretoken that is a token is taken whole.
    arguments = {"pretokenizer": "whitespace", "special_tokens": {"end": 300}}
    [(where, message)] = findings({"x": ranks(b"YWJj 256")}, **arguments)
    assert where == "special_tokens" and "'end'" in message
    assert read_vocabulary({"x": ranks(b"YWI= 256")}, **arguments).tokens[300] == b"end"


@pytest.mark.parametrize(
    ("files", "where", "message"),
    [
        ({"vocab.json": b"{}", "merges.txt": b""}, "vocab.json", "at least one"),
        (
            {"vocab.json": encoded(WORDS), "merges.txt": b"#version: 0.2\na b\na c\n"},
            "line 3",
            "'c' is not in",
        ),
        ({"vocab.json": encoded(WORDS), "merges.txt": b"a b\n\na b\n"}, "line 2", "two tokens"),
        ({"vocab.json": encoded(WORDS), "merges.txt": b"a \xff\n"}, "line 1", "UTF-8"),
        ({"merges.txt": b"a b\n"}, "files", "together"),
        ({"vocab.json": encoded(WORDS)}, "id 2", "is 'ab', but 'bb'"),
        ({"vocab.txt": b"[UNK]\nthe\n##s\n"}, "line 3", "send its tokenizer.json"),
        ({"vocab.txt": b"[UNK]\nAA\nAC\nCA\n"}, "line 2", "all over 'AC' are 4"),
        ({"vocab.txt": b"[UNK]\nAA\nCA\nAC\nCC\n"}, "line 2", "over 'AC' are not in counting"),
        ({"vocab.txt": b"[UNK]\nCA\nAA\nCC\n"}, "line 2", "all over 'CA' are 4"),
        (
            {"vocab.json": b'{"[UNK]": 0, "AA": 1, "AC": 2, "CA": 3, "CC": 99}'},
            "id 99",
            "'CC' must be at id 4, because the k-mers have consecutive ids",
        ),
        ({"vocab.txt": b"[UNK]\nAA\nAC\nCC\nCA\n"}, "line 4", "is 'CC', but 'CA'"),
        ({"vocab.txt": b"[UNK]\nAA\nAC\nTA\nTC\n"}, "line 4", "is 'TA', but 'CA' comes"),
        ({"vocab.txt": b"[UNK]\nAA\nAC\nCA\nCC\nhello\nA\n"}, "line 6", "letter or word of 2"),
        ({"vocab.txt": b"[UNK]\nA\nC\nA\n"}, "line 4", "stands at line 2 too"),
        ({"vocab.txt": b"A\nC\n"}, "special_tokens", "unknown"),
        ({"vocab.txt": b"[UNK]\n"}, "vocabulary", "no letter"),
        ({"vocab.txt": b""}, "vocabulary", "no letter"),
        ({"x": b""}, "vocabulary", "no letter"),
        ({"vocab_config.json": b"[]"}, "vocab_config.json", "object"),
        ({"vocab_config.json": b"{}"}, "k", "missing"),
        ({"vocab_config.json": b'{"k": 6, "strid": 2}'}, "strid", "no such field"),
        ({"vocab_config.json": b'{"k": "6"}'}, "k", "'6' is not a whole number"),
        ({"vocab_config.json": b'{"k": 0}'}, "k", "k-mers"),
        ({"vocab_config.json": b'{"k": 12, "letters": "ACGTN"}'}, "k", "k-mers"),
        ({"vocab_config.json": b'{"k": 2, "stride": 3}'}, "model.stride", "1 to k"),
        (
            {"vocab_config.json": b'{"k": 2, "frame": "x"}'},
            "frame",
            "'x' is not one of sequence, run",
        ),
        ({"vocab_config.json": b'{"k": 2, "circular": 1}'}, "circular", "1 is not true or false"),
        ({"vocab_config.json": b'{"k": 2, "letters": 4}'}, "letters", "4 is not a text"),
        ({"vocab_config.json": b'{"k": 2, "end_token_ids": 4}'}, "end_token_ids", "is not a list"),
        ({"vocab_config.json": b'{"k": 2, "letter_ids": [1]}'}, "letter_ids", "is not an object"),
        (
            {"vocab_config.json": b'{"k": 2, "special_tokens": [{"content": "[UNK]", "type": 1}]}'},
            "special_tokens[0]",
            "no field 'type'",
        ),
        (
            {"vocab_config.json": b'{"k": 2, "special_tokens": [{"content": "[UNK]"}]}'},
            "special_tokens[0]",
            "the field 'id' is missing",
        ),
        (
            {"vocab_config.json": b'{"k": 2, "vocab_size": 10}'},
            "vocab_size",
            "larger than every id",
        ),
        ({"vocab_config.json": b'{"k": 2, "vocab_size": 100000000}'}, "vocab_size", "at most"),
        ({"vocab_config.json": b'{"k": 2, "special_tokens": [3]}'}, "special_tokens[0]", "3"),
        ({"vocab_config.json": b'{"k": 2, "special_tokens": ["x"]}'}, "unk_token_id", "missing"),
        ({"vocab_config.json": b'{"k": 2, "pad_token_id": 99}'}, "roles.pad", "outside"),
        ({"vocab_config.json": b'{"k": 2, "padding_side": "up"}'}, "padding_side", "'up'"),
        ({"vocab_config.json": b'{"model_type": "bert"}'}, "model_type", "'bert'"),
        ({"vocab_config.json": b'{"k": 2, "end_token_ids": 3}'}, "end_token_ids", "3"),
        (
            {"a.json": encoded(ABC), "b.json": encoded(ABC)},
            "files",
            "are not the files of the format",
        ),
        ({"a/x": encoded(ABC), "b/x": encoded(ABC)}, "files", "same name"),
        ({}, "files", "no file"),
    ],
)
def test_other_formats_name_their_faults(files, where, message):
    place, reason = findings(files)[0]
    assert place == where
    assert message in reason


def test_the_error_of_a_wrong_list_says_what_it_was_read_as():
    *_, (where, message) = findings({"vocab.json": encoded(WORDS)})
    assert where == "files" and message.startswith("cannot be read as vocab.json")
    *_, (where, message) = findings({"unknown.bin": b"some text\nof no format\n"})
    assert where == "files" and message.startswith("cannot be read as vocab.txt")


def test_arguments_that_a_format_does_not_take_are_refused():
    files = {"tokenizer.json": encoded(ABC)}
    for name, value in {"pretokenizer": "gpt2", "special_tokens": {}, "id_offset": 3}.items():
        assert findings(files, **{name: value})[0][0] == name
    assert findings(files, format="zip")[0][0] == "format"
    letters = {"vocab.json": b'{"[UNK]": 0, "A": 1}'}
    assert "needs vocab.json and merges.txt" in findings(letters, pretokenizer="gpt2")[0][1]


def test_special_tokens_of_the_gpt2_pair_must_agree_with_vocab_json():
    files = {"vocab.json": encoded(WORDS | {"<s>": 3, "<z>": 4}), "merges.txt": b"a b\n"}
    assert [t.content for t in read_vocabulary(files).special_tokens] == ["<s>"]
    given = read_vocabulary(files, special_tokens={"<z>": 4, "<new>": 9}, pretokenizer="cl100k")
    assert [t.content for t in given.special_tokens] == ["<z>", "<new>"]
    assert (given.pretokenizer, given.tokens[5:]) == ("cl100k", (None,) * 4 + (b"<new>",))
    wrong = {"<z>": 3, "<q>": 0, "<r>": -1}
    assert [where for where, _ in findings(files, special_tokens=wrong)] == [
        f"special_tokens[{content!r}]" for content in wrong
    ]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"dropout": False}, "model.dropout"),
        ({"continuing_subword_prefix": 0}, "model.continuing_subword_prefix"),
        ({"end_of_word_suffix": False}, "model.end_of_word_suffix"),
        ({"byte_fallback": ""}, "model.byte_fallback"),
        ({"type": None}, "model.type"),
        ({"type": ""}, "model.type"),
        ({"merges": ["a b", ["ab", "c"]]}, "model.merges"),
    ],
)
def test_a_model_that_says_no_type_is_refused_where_the_library_reads_another(fields, where):
    """A WordLevel of the same strings: other ids, and not a word."""
    model = {key: each for key, each in ABC["model"].items() if key != "type"}
    content = ABC | {"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    for own in ({}, {"fuse_unk": None, "dropout": 0}):
        made = encoded(content | {"model": model | own})
        library = Tokenizer.from_str(made.decode()).encode("abab abc").ids
        assert (
            tokenizer.encode(read_vocabulary({"tokenizer.json": made}), "abab abc").ids == library
        )
    wrong = encoded(content | {"model": model | fields})
    with pytest.raises(VocabularyError) as refused:
        read_vocabulary({"tokenizer.json": wrong})
    assert [finding.where for finding in refused.value.findings] == [where]
