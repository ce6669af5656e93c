"""The vocabulary value: checked when made, identified by its digest, with one canonical form."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vocabularies.builtin import BUILTINS, load
from vocabularies.errors import VocabularyError
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.formats.huggingface.reader import read_tokenizer_json
from vocabularies.model.canonical import MAGIC, to_bytes
from vocabularies.model.types import Bpe, Characters, Kmers, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

AB = Vocabulary(
    tokens=(b"a", b"b", b"ab", None, b"<s>"),
    model=Bpe(((0, 1),), unknown_id=4),
    special_tokens=(SpecialToken("<s>", 4),),
    normalizers=(Normalizer("replace_regex", "N{10,}", "-"),),
    pretokenizer="isolate:-",
    prefix=(4,),
    suffix=(4, 4),
    roles={"bos": 4},
    padding_side="left",
)
TWO_MERS = tuple(f"{a}{b}".encode() for a in "AC" for b in "AC")
KMERS = Vocabulary((b"?", *TWO_MERS), Kmers(2, 1, 0, letters="AC"))


def faults(**changes: object) -> list[tuple[str, str]]:
    with pytest.raises(VocabularyError) as raised:
        dataclasses.replace(AB, **changes)
    return [(finding.where, finding.message) for finding in raised.value.findings]


def kmer_faults(**changes: object) -> list[str]:
    with pytest.raises(VocabularyError) as raised:
        dataclasses.replace(KMERS, model=dataclasses.replace(KMERS.model, **changes))
    return [finding.where for finding in raised.value.findings]


def test_equal_fields_have_one_digest_and_every_field_counts():
    again = dataclasses.replace(AB)
    assert again == AB and hash(again) == hash(AB) and again.digest == AB.digest
    changes: list[dict[str, object]] = [
        {"tokens": (*AB.tokens, None)},
        {"tokens": (b"b", b"a", b"ba", None, b"<s>")},
        {"model": Bpe(((0, 1),))},
        {"model": Bpe((), unknown_id=4)},
        {"special_tokens": (SpecialToken("<s>", 4, lstrip=True),)},
        {"normalizers": ()},
        {"pretokenizer": "none"},
        {"prefix": ()},
        {"suffix": (4,)},
        {"roles": {"eos": 4}},
        {"padding_side": "right"},
    ]
    digests = {dataclasses.replace(AB, **change).digest for change in changes}
    assert len(digests | {AB.digest}) == len(changes) + 1


def test_digests_do_not_change_between_releases():
    assert AB.digest == "sha256:b2110dbfe42f368a95225cfc0839190d22cd77fafd5a236fd755686a6582e817"
    assert KMERS.digest == "sha256:a2441727a60a7c57b463e9aa0c424a6dbc5817a0382d50b1a4479f08d818c5d9"


def test_the_order_of_roles_does_not_count():
    roles = {"bos": 4, "eos": 4}
    one = dataclasses.replace(AB, roles=roles)
    assert one == dataclasses.replace(AB, roles=dict(reversed(roles.items())))
    roles["bos"] = 0
    assert one.roles["bos"] == 4
    with pytest.raises(TypeError):
        one.roles["bos"] = 0


def test_all_faults_are_found_with_their_places():
    found = faults(
        tokens=(b"a", b"a", b"", None, b"<x>"),
        model=Bpe(((0, 1), (9, 0), (3, 0), (0, -1)), unknown_id=3),
        special_tokens=(SpecialToken("<s>", 4), SpecialToken("<s>", 7), SpecialToken("", 3)),
        prefix=(3,),
        suffix=(5,),
        roles={"boss": 4, "pad": 9},
        pretokenizer="gpt3",
        normalizers=(Normalizer("replace"), Normalizer("replace_regex", "(a")),
    )
    assert [where for where, _ in found] == [
        "prefix[0]",
        "suffix[0]",
        "roles.boss",
        "roles.pad",
        "special_tokens[0]",
        "special_tokens[1]",
        "special_tokens[1]",
        "special_tokens[2]",
        "special_tokens[2]",
        "pretokenizer",
        "normalizers[0]",
        "normalizers[1]",
        "model.unknown_id",
        "tokens[1]",
        "tokens[2]",
        "merges[0]",
        "merges[1]",
        "merges[2]",
        "merges[3]",
    ]
    assert ("merges[0]", "b'aa' is not a token") in found


def test_a_merge_that_stands_twice_or_makes_no_token_is_a_fault():
    assert faults(model=Bpe(((0, 1), (0, 1)))) == [("merges[1]", "(0, 1) is also merges[0]")]
    assert faults(model=Bpe(((0, 1), (2, 1)))) == [("merges[1]", "b'abb' is not a token")]
    for beyond in (-4, 5, 2**70):  # tokens[-4] is b"b", but -4 is no id.
        assert faults(model=Bpe(((0, beyond),)))[0][0] == "merges[0]"


def test_at_most_a_hundred_faults_are_listed():
    found = faults(model=Bpe(((1, 0),) * 500))
    assert len(found) == 101
    assert found[-1] == ("vocabulary", "more than 100 faults; the rest is not listed")


def test_an_empty_vocabulary_is_a_fault():
    with pytest.raises(VocabularyError, match="at least one token"):
        Vocabulary((), Bpe(()))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"k": 0}, "model.k"),
        ({"k": 13}, "model.k"),
        ({"letters": ""}, "model.letters"),
        ({"letters": "AA"}, "model.letters"),
        ({"letters": "Aé"}, "model.letters"),
        ({"stride": 0}, "model.stride"),
        ({"stride": 3}, "model.stride"),
        ({"frame": "run"}, "model.stride"),
        ({"max_piece_tokens": 0}, "model.max_piece_tokens"),
        ({"max_piece_tokens": 2**63}, "model.max_piece_tokens"),
        ({"unknown_id": 9}, "model.unknown_id"),
        ({"first_id": 2}, "model.first_id"),
        ({"letter_ids": (("AC", 0),)}, "model.letter_ids['AC']"),
        ({"remainder": "letters"}, "model.letter_ids"),
    ],
)
def test_every_fault_of_a_kmer_rule_is_found(changes, where):
    assert where in kmer_faults(**changes)


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (Characters((("a", 7),), 0), "model.letter_ids['a']"),
        (Characters((("ab", 0),), 0), "model.letter_ids['ab']"),
        (Characters((("中", 0),), 0, unit="byte"), "model.letter_ids['中']"),
        (Characters((("a", 0),)), "model.unknown_id"),
    ],
)
def test_every_fault_of_characters_is_found(model, where):
    with pytest.raises(VocabularyError) as raised:
        Vocabulary((b"a",), model)
    assert [finding.where for finding in raised.value.findings] == [where]


def test_280000_merges_are_checked_quickly():
    kmers = [bytes([a, b]) for a in range(256) for b in range(256)]
    tokens = tuple([bytes([byte]) for byte in range(256)] + kmers)
    pairs = [(a, b) for a in range(256) for b in range(256)]
    long = tuple(kmer + bytes([byte]) for byte in range(4) for kmer in kmers)
    first = len(tokens)
    pairs += [(256 + i, byte) for byte in range(4) for i in range(65536)]
    begin = time.process_time()
    vocabulary = Vocabulary(tokens + long, Bpe(tuple(pairs)))
    seconds = time.process_time() - begin
    assert len(vocabulary.model.merges) == 327_680 and len(vocabulary) == first + 262_144
    assert seconds < 4, seconds  # 0.3 s on a quiet machine.
    assert read_canonical(to_bytes(vocabulary)).model == vocabulary.model


def test_tokens_are_shown_as_people_read_them():
    tokens = (b" the", b"\xff\x00", b"\xe2\x98", b" \xe2\x98\x83\xe2", None)
    vocabulary = Vocabulary(tokens, Bpe(()))
    texts = [" the", "<0xFF>\x00", "<0xE2><0x98>", " ☃<0xE2>"]
    assert [vocabulary.token_string(i) for i in range(4)] == texts
    assert [vocabulary.show_token(i, "text") for i in range(4)] == texts
    strings = ["Ġthe", "ÿĀ", "âĺ", "Ġâĺĥâ"]
    assert [vocabulary.file_string(i) for i in range(4)] == strings
    assert [vocabulary.show_token(i, "file") for i in range(4)] == strings
    for token_id in (4, 5):
        with pytest.raises(IndexError):
            vocabulary.token_string(token_id)
    assert repr(vocabulary) == f"Vocabulary(bpe, 5 ids, {vocabulary.digest})"
    assert AB.special_ids == {4}


@pytest.mark.parametrize("kind", ["WordPiece", "Unigram"])
def test_tokens_that_the_library_computes_are_shown_as_in_their_file(kind):
    strings = ["<unk>", "Ġthe", "▁", "âĺ"]
    listed = [[each, 0.0] for each in strings]
    by_token = {each: token_id for token_id, each in enumerate(strings)}
    rest = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    model = {"vocab": by_token, "unk_token": "<unk>"} | rest
    if kind == "Unigram":
        model = {"vocab": listed, "unk_id": 0}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    document = {
        "model": {"type": kind} | model,
        "pre_tokenizer": level | {"use_regex": True},
        "added_tokens": [{"id": 4, "content": " é"} | flags],
    }
    vocabulary = read_tokenizer_json(json.dumps(document).encode())
    assert isinstance(vocabulary.model, Upstream)
    assert [vocabulary.file_string(i) for i in range(5)] == [*strings, " é"]
    assert vocabulary.token_string(1) == " the"


@pytest.mark.parametrize("name", BUILTINS)
def test_the_canonical_form_holds_every_field(name):
    vocabulary, again = load(name), read_canonical(to_bytes(load(name)))
    for field in dataclasses.fields(Vocabulary):
        assert getattr(again, field.name) == getattr(vocabulary, field.name), field.name


def test_the_canonical_form_holds_models_of_every_kind():
    upstream = Vocabulary((b"a", None), Upstream('{"é": "\\ud83d"}', "because"))
    for vocabulary in (AB, KMERS, upstream, load("nt_v2"), load("evo_bytes")):
        again = read_canonical(to_bytes(vocabulary))
        assert (again.model, again.tokens) == (vocabulary.model, vocabulary.tokens)


def changed_header(**changes: object) -> bytes:
    content = to_bytes(AB)[len(MAGIC) :]
    size = int.from_bytes(content[:4], "little")
    header = json.loads(content[4 : 4 + size]) | changes
    encoded = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    return MAGIC + len(encoded).to_bytes(4, "little") + encoded + content[4 + size :]


@pytest.mark.parametrize(
    "changes",
    [
        {"num_tokens": 6},
        {"num_tokens": -1},
        {"num_tokens": True},
        {"num_tokens": 2**62},
        {"num_merges": 0},
        {"num_merges": "1"},
        {"kind": "pickle"},
        {"kind": None},
        {"model": {}},
        {"model": {"byte_level": 1}},
        {"model": {"byte_level": True, "command": "rm"}},
        {"special_tokens": [{"content": "<s>"}]},
        {"special_tokens": [{"content": "<s>", "id": 4.0}]},
        {"special_tokens": [{"content": "\ud800", "id": 4}]},
        {"normalizers": [{"kind": "nfkc"}]},
        {"normalizers": 3},
        {"pretokenizer": None},
        {"prefix": ["4"]},
        {"prefix": 4},
        {"roles": []},
        {"roles": {"bos": None}},
        {"padding_side": "up"},
    ],
)
def test_a_damaged_canonical_form_is_refused(changes):
    with pytest.raises(VocabularyError, match="damaged canonical form"):
        read_canonical(changed_header(**changes))


def test_a_canonical_form_with_a_wrong_vocabulary_is_refused():
    assert read_canonical(changed_header()) == AB
    with pytest.raises(VocabularyError, match=r"prefix\[0\]"):
        read_canonical(changed_header(prefix=[99]))
    with pytest.raises(VocabularyError, match="not the canonical form"):
        read_canonical(b"PK")


@settings(max_examples=300)
@given(place=st.integers(0, len(to_bytes(AB)) - 1), byte=st.integers(0, 255), cut=st.booleans())
def test_a_changed_byte_is_refused_or_another_vocabulary(place, byte, cut):
    content = bytearray(to_bytes(AB))
    content[place] = byte
    changed = bytes(content[:place] if cut else content)
    try:
        assert (read_canonical(changed) == AB) == (changed == to_bytes(AB))
    except VocabularyError:
        assert changed != to_bytes(AB)


@settings(max_examples=100)
@given(order=st.permutations(range(6)), special=st.sampled_from([None, "ab", "abb"]))
def test_merged_ids_are_those_of_the_joined_tokens(order, special):
    words = [b"ab", b"ba", b"bb", b"abb", b"aba", b"abba"]
    pairs = [(b"a", b"b"), (b"b", b"a"), (b"b", b"b"), (b"ab", b"b"), (b"ab", b"a"), (b"ab", b"ba")]
    tokens = (b"a", b"b", *(words[i] for i in order))
    merges = tuple((tokens.index(left), tokens.index(right)) for left, right in pairs)
    added = () if special is None else (SpecialToken(special, len(tokens)),)
    tokens += tuple(token.content.encode() for token in added)
    vocabulary = Vocabulary(tokens, Bpe(merges, byte_level=False), added)
    assert vocabulary.merged_ids.tolist() == [tokens.index(word) for word in words]
    assert [vocabulary.find_token_ids()[word] for word in words] == vocabulary.merged_ids.tolist()
