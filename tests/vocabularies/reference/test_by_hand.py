"""The reference by hand: each rule on a text short enough to work out with a pencil."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabularies.batch.batch import EncodeOptions, RowError, RowRefused
from vocabularies.model.types import Bpe, Characters, Kmers, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.reference.tokenizer import decode, encode, reverse_complement_text

BARE = EncodeOptions(add_special_tokens=False)
PAD, UNK, CLS, SEP, MASK, FIRST = 0, 1, 2, 3, 4, 5
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def bpe(tokens: str, merges: str = "", **settings: Any) -> Vocabulary:
    """Make a character-level BPE of tokens and merges (left+right), separated by blanks."""
    names = tokens.split()
    pairs = tuple(
        (names.index(a), names.index(b)) for a, b in (m.split("+") for m in merges.split())
    )
    model = Bpe(merges=pairs, **({"byte_level": False} | settings))
    return Vocabulary(tuple(name.encode() for name in names), model)


def kmers(k: int = 3, letters: str = "ACGT", matched: bool = True, **settings: Any) -> Vocabulary:
    """Make special tokens, k-mers from id 5, letters and N; [CLS] and [SEP] around a text."""
    words = ["".join(word) for word in product(letters, repeat=k)]
    names = [*SPECIAL, *words, *letters, "N"] if k > 1 else [*SPECIAL, *words, "N"]
    singles = tuple((letter, names.index(letter)) for letter in (*letters, "N"))
    model = Kmers(k, FIRST, UNK, letters=letters, letter_ids=singles, **settings)
    special = tuple(SpecialToken(name, i, matched=matched) for i, name in enumerate(SPECIAL))
    tokens = tuple(name.encode() for name in names)
    return Vocabulary(tokens, model, special, prefix=(CLS,), suffix=(SEP,))


def characters(case: str = "keep", **settings: Any) -> Vocabulary:
    names = (*SPECIAL, *"ACGTN")
    ids = tuple((name, i) for i, name in enumerate(names) if len(name) == 1)
    model = Characters(ids, UNK, case=case, **settings)
    special = tuple(SpecialToken(name, i) for i, name in enumerate(SPECIAL))
    return Vocabulary(tuple(n.encode() for n in names), model, special, suffix=(SEP,))


def shown(vocabulary: Vocabulary, text: str, options: EncodeOptions = BARE) -> str:
    """Return the tokens of a text, separated by blanks."""
    return b" ".join(
        vocabulary.tokens[i] or b"" for i in encode(vocabulary, text, options).ids
    ).decode()


def spans(
    vocabulary: Vocabulary, text: str, options: EncodeOptions = BARE
) -> list[tuple[int, int]]:
    return encode(vocabulary, text, options).spans


def refusal(vocabulary: Vocabulary, text: str, **options: Any) -> RowError:
    with pytest.raises(RowRefused) as refused:
        encode(vocabulary, text, EncodeOptions(**options))
    return refused.value.error


class TestBpe:
    def test_wikipedias_example(self):
        """aaabdaaabac: Z = aa gives Zabd Zabac, Y = ab gives ZYd ZYac, X = ZY gives XdXac."""
        vocabulary = bpe("a b c d aa ab aaab", "a+a a+b aa+ab")
        assert shown(vocabulary, "aaabdaaabac") == "aaab d aaab a c"
        assert spans(vocabulary, "aaabdaaabac") == [(0, 4), (4, 5), (5, 9), (9, 10), (10, 11)]

    def test_equal_ranks_that_overlap_are_merged_leftmost_first(self):
        assert shown(bpe("a aa", "a+a"), "aaaaa") == "aa aa a"

    def test_a_lower_rank_to_the_right_is_merged_first(self):
        """b+c has rank 0, so a+b, though further left, finds no b any more."""
        assert shown(bpe("a b c bc ab", "b+c a+b"), "abcab") == "a bc ab"

    def test_a_token_that_no_merge_reaches_does_not_appear(self):
        assert shown(bpe("a b ab"), "ab") == "a b"

    def test_ignore_merges_takes_a_pretoken_that_is_a_token(self):
        vocabulary = bpe("a b c ab abc bc", "b+c", ignore_merges=True)
        assert shown(vocabulary, "ab") == "ab"
        assert shown(vocabulary, "abc") == "abc"
        assert shown(vocabulary, "abca") == "a bc a"

    def test_unknown_symbols_apart_fused_and_dropped(self):
        tokens, merges = "[U] a b ab", "a+b"
        apart = bpe(tokens, merges, unknown_id=0)
        fused = bpe(tokens, merges, unknown_id=0, fuse_unknown=True)
        dropped = bpe(tokens, merges)
        assert shown(apart, "aééb") == "a [U] [U] b"
        assert spans(apart, "aééb") == [(0, 1), (1, 3), (3, 5), (5, 6)]
        assert shown(fused, "aééb") == "a [U] b"
        assert spans(fused, "aééb") == [(0, 1), (1, 5), (5, 6)]
        assert shown(dropped, "aééb") == "ab"
        assert spans(dropped, "aééb") == [(0, 6)]

    def test_byte_level_tokens_span_their_bytes_and_not_characters(self):
        tokens = (*(bytes([byte]) for byte in range(256)), b"\xa9a")
        vocabulary = Vocabulary(tokens, Bpe(merges=((0xA9, 0x61),)))
        row = encode(vocabulary, "aéa")
        assert row.ids == [0x61, 0xC3, 256]
        assert row.spans == [(0, 1), (1, 2), (2, 4)]

    def test_an_ordinary_token_comes_before_a_special_one_that_spells_the_same(self):
        special = SpecialToken("a", 0)
        vocabulary = Vocabulary((b"a", b"b", b"a"), Bpe(merges=(), byte_level=False), (special,))
        assert encode(vocabulary, "ab", EncodeOptions(special="plain")).ids == [2, 1]
        assert encode(vocabulary, "ab").ids == [0, 1]

    def test_a_special_token_is_a_symbol_where_no_ordinary_token_spells_it(self):
        """GENA-LM's "-" is a special token and the symbol that its normalizer writes."""
        special = SpecialToken("-", 0)
        vocabulary = Vocabulary((b"-", b"b"), Bpe(merges=(), byte_level=False), (special,))
        assert encode(vocabulary, "b-", EncodeOptions(special="plain")).ids == [1, 0]

    def test_merges_never_cross_pretokens(self):
        vocabulary = replace(bpe("a aa", "a+a"), pretokenizer="whitespace_split")
        assert shown(vocabulary, "aaa aa") == "aa a aa"
        assert spans(vocabulary, "aaa aa") == [(0, 2), (2, 3), (4, 6)]


class TestSpecialTokens:
    def vocabulary(self, *special: SpecialToken, **fields: Any) -> Vocabulary:
        tokens = (
            *(letter.encode() for letter in "ab<>_ é"),
            *(t.content.encode() for t in special),
        )
        return Vocabulary(tokens, Bpe(merges=(), byte_level=False), special, **fields)

    def test_leftmost_then_longest(self):
        vocabulary = self.vocabulary(
            SpecialToken("<a", 7), SpecialToken("<a>", 8), SpecialToken("a>b", 9)
        )
        assert encode(vocabulary, "é<a>b<a").ids == [6, 8, 1, 7]
        assert spans(vocabulary, "é<a>b<a") == [(0, 2), (2, 5), (5, 6), (6, 8)]

    def test_plain_skips_the_longest_match_with_all_of_its_text(self):
        """ "a>b" begins inside the skipped "<a>" and is not found; after it it is."""
        found = SpecialToken("a>b", 8, special=False)
        vocabulary = self.vocabulary(SpecialToken("<a>", 7), found)
        plain = EncodeOptions(special="plain")
        assert encode(vocabulary, "<a>ba>b", plain).ids == [2, 0, 3, 1, 8]

    def test_refuse_names_the_byte_and_leaves_tokens_that_are_not_special(self):
        vocabulary = self.vocabulary(
            SpecialToken("<a>", 7, lstrip=True), SpecialToken("b", 1, special=False)
        )
        error = refusal(vocabulary, "éb <a>", special="refuse")
        assert error == RowError(
            "special_token_refused", "the text contains the special token '<a>'", "byte 4"
        )
        assert encode(vocabulary, "éb", EncodeOptions(special="refuse")).ids == [6, 1]

    def test_a_token_that_is_not_matched_is_ordinary_text(self):
        vocabulary = self.vocabulary(SpecialToken("<a>", 7, matched=False))
        assert encode(vocabulary, "<a>", EncodeOptions(special="refuse")).ids == [2, 0, 3]

    def test_white_space_goes_with_a_token_that_strips(self):
        vocabulary = self.vocabulary(SpecialToken("<a>", 7, lstrip=True, rstrip=True))
        assert encode(vocabulary, "b  <a> <a> b").ids == [1, 7, 7, 1]
        assert spans(vocabulary, "b  <a> <a> b") == [(0, 1), (1, 7), (7, 11), (11, 12)]

    def test_a_stripping_token_inside_stripped_white_space_is_dropped(self):
        taking, blank = SpecialToken("<a>", 7, rstrip=True), SpecialToken(" ", 5, lstrip=True)
        vocabulary = self.vocabulary(taking, blank)
        assert encode(vocabulary, "<a> b").ids == [7, 1]
        assert encode(vocabulary, "b  b").ids == [1, 5, 5, 1]

    def test_single_word_is_not_touched_by_word_characters(self):
        vocabulary = self.vocabulary(SpecialToken("ab", 7, single_word=True))
        assert encode(vocabulary, "ab<ab ab_ éab").ids == [7, 2, 7, 5, 0, 1, 4, 5, 6, 0, 1]

    def test_normalized_tokens_are_found_behind_the_normalizers(self):
        raw, normalized = SpecialToken("A", 7), SpecialToken("<B>", 8, normalized=True)
        vocabulary = self.vocabulary(raw, normalized, normalizers=(Normalizer("lowercase"),))
        assert encode(vocabulary, "Aa<b><B>").ids == [7, 0, 8, 8]

    def test_stretches_between_special_tokens_are_normalized_one_by_one(self):
        vocabulary = self.vocabulary(SpecialToken("<a>", 7), normalizers=(Normalizer("strip"),))
        assert encode(vocabulary, " a <a> b ").ids == [0, 7, 1]
        assert spans(vocabulary, " a <a> b ") == [(1, 2), (3, 6), (7, 8)]


class TestTemplateAndTruncation:
    def row(self, **options: Any) -> tuple[list[int], int, tuple[int, int]]:
        row = encode(
            replace(bpe("a b c x y z"), prefix=(3,), suffix=(4, 5)), "abc", EncodeOptions(**options)
        )
        return row.ids, row.num_tokens, row.kept

    def test_begin_and_end_tokens_stand_around(self):
        assert self.row() == ([3, 0, 1, 2, 4, 5], 6, (0, 3))
        assert self.row(add_special_tokens=False) == ([0, 1, 2], 3, (0, 3))

    def test_begin_and_end_tokens_span_nothing(self):
        vocabulary = replace(bpe("a x"), prefix=(1,), suffix=(1,))
        assert encode(vocabulary, "a").spans == [(0, 0), (0, 1), (0, 0)]

    def test_the_right_or_the_left_is_cut(self):
        assert self.row(max_length=5) == ([3, 0, 1, 4, 5], 6, (0, 2))
        assert self.row(max_length=5, truncation_side="left") == ([3, 1, 2, 4, 5], 6, (1, 3))

    def test_the_exact_length_is_not_cut(self):
        assert self.row(max_length=6) == ([3, 0, 1, 2, 4, 5], 6, (0, 3))

    def test_the_content_may_be_cut_to_nothing_but_the_template_may_not_be_cut(self):
        assert self.row(max_length=3) == ([3, 4, 5], 6, (0, 0))
        assert self.row(max_length=3, truncation_side="left") == ([3, 4, 5], 6, (3, 3))
        vocabulary = replace(bpe("a x"), prefix=(1,), suffix=(1,))
        assert refusal(vocabulary, "", max_length=1).code == "max_length_too_small"

    def test_without_begin_and_end_tokens_only_the_content_counts(self):
        assert self.row(max_length=2, add_special_tokens=False) == ([0, 1], 3, (0, 2))
        assert self.row(max_length=0, add_special_tokens=False) == ([], 3, (0, 0))


class TestKmers:
    def test_at_every_base(self):
        assert shown(kmers(), "ACGTA") == "ACG CGT GTA"
        assert spans(kmers(), "ACGTA") == [(0, 3), (1, 4), (2, 5)]
        assert encode(kmers(), "AAAC").ids == [CLS, FIRST, FIRST + 1, SEP]

    def test_counting_order_is_that_of_the_letters(self):
        """A=0 T=1 C=2 G=3: GAT is 3*16 + 0*4 + 1 = 49."""
        assert encode(kmers(letters="ATCG"), "GAT", BARE).ids == [FIRST + 49]

    def test_any_number_of_letters_can_count(self):
        """R=0 Y=1 N=2: YNR is 1*9 + 2*3 + 0 = 15."""
        names = (*SPECIAL, *map("".join, product("RYN", repeat=3)))
        model = Kmers(3, FIRST, UNK, letters="RYN")
        vocabulary = Vocabulary(tuple(name.encode() for name in names), model)
        assert encode(vocabulary, "YNR").ids == [FIRST + 15]
        assert shown(vocabulary, "YNRA") == "YNR [UNK]"

    def test_shorter_than_k_is_nothing_or_its_letters(self):
        assert shown(kmers(), "AC") == ""
        assert shown(kmers(remainder="letters"), "AC") == "A C"

    def test_strides_and_remainders(self):
        assert shown(kmers(stride=3), "ACGTACGT") == "ACG TAC"
        assert shown(kmers(stride=3, remainder="letters"), "ACGTACGX") == "ACG TAC G [UNK]"
        assert shown(kmers(stride=2), "ACGTAC") == "ACG GTA"

    def test_another_letter_makes_every_kmer_that_holds_it_unknown(self):
        assert shown(kmers(), "ACGNACG") == "ACG [UNK] [UNK] [UNK] ACG"
        assert shown(kmers(), "ACGaéT") == "ACG [UNK] [UNK] [UNK]"
        assert spans(kmers(), "ACéGT") == [(0, 4), (1, 5), (2, 6)]

    def test_upper_case_first(self):
        assert shown(kmers(case="upper"), "acGt") == "ACG CGT"
        assert spans(kmers(case="upper"), "aßc") == [(0, 3), (1, 4)]  # A S S C

    def test_runs_have_their_own_frames(self):
        vocabulary = kmers(frame="run", stride=3, remainder="letters", whitespace="skip")
        assert shown(vocabulary, "ACGTANNAxyA") == "ACG T A N N A [UNK] A"
        assert spans(vocabulary, "TNéxA") == [(0, 1), (1, 2), (2, 5), (5, 6)]
        assert shown(vocabulary, "ACG TAx y\nA") == "ACG T A [UNK] [UNK] A"

    def test_runs_without_letters_drop_the_remainder(self):
        assert shown(kmers(frame="run", stride=3), "ACGTAN ACG") == "ACG N [UNK] ACG"

    def test_skipped_white_space_parts_a_sequence(self):
        assert shown(kmers(whitespace="skip"), "ACGT ACG\n") == "ACG CGT ACG"

    def test_special_tokens_part_a_sequence_where_they_are_matched(self):
        assert shown(kmers(), "ACG[MASK]CGTA") == "ACG [MASK] CGT GTA"
        assert shown(kmers(matched=False), "G[MASK") == "[UNK] [UNK] [UNK] [UNK]"


class TestCircular:
    WRAP = EncodeOptions(add_special_tokens=False, circular=True)

    def test_the_junction_is_appended(self):
        """Tokens 3 and 4 read T T|A and T|A C; they span what stands before the junction."""
        assert shown(kmers(), "ACGTT", self.WRAP) == "ACG CGT GTT TTA TAC"
        assert spans(kmers(), "ACGTT", self.WRAP) == [(0, 3), (1, 4), (2, 5), (3, 5), (4, 5)]

    def test_the_junction_is_prepended(self):
        vocabulary = kmers(junction="prepend")
        assert shown(vocabulary, "ACGTT", self.WRAP) == "TTA TAC ACG CGT GTT"
        assert spans(vocabulary, "ACGTT", self.WRAP) == [(3, 5), (4, 5), (0, 3), (1, 4), (2, 5)]

    def test_a_six_mer_junction(self):
        """L = 8: tokens 3..7 wrap and read 5, 4, 3, 2, 1 bases before the junction."""
        tokens = "AACCGG ACCGGT CCGGTT CGGTTA GGTTAA GTTAAC TTAACC TAACCG"
        assert shown(kmers(6), "AACCGGTT", self.WRAP) == tokens
        ends = [6, 7, 8, 8, 8, 8, 8, 8]
        assert spans(kmers(6), "AACCGGTT", self.WRAP) == [(p, end) for p, end in enumerate(ends)]

    def test_as_short_as_k(self):
        assert shown(kmers(), "ACG", self.WRAP) == "ACG CGA GAC"
        assert refusal(kmers(), "AC", circular=True).code == "too_short_for_circular"
        assert refusal(kmers(), "", circular=True).code == "too_short_for_circular"

    def test_the_vocabulary_decides_unless_the_request_does(self):
        vocabulary = kmers(circular=True)
        assert len(encode(vocabulary, "ACGTT", BARE).ids) == 5
        assert len(encode(vocabulary, "ACGTT", replace(BARE, circular=False)).ids) == 3

    @pytest.mark.parametrize(
        ("vocabulary", "text"),
        [
            (characters(), "ACGT"),
            (bpe("A"), "AAAA"),
            (kmers(stride=3), "ACGT"),
            (kmers(frame="run", stride=3), "ACGT"),
            (kmers(whitespace="words"), "ACG CGT"),
            (kmers(whitespace="skip"), "ACG CGT"),
            (kmers(), "ACG[MASK]ACG"),
        ],
    )
    def test_what_cannot_wrap_is_refused(self, vocabulary, text):
        assert refusal(vocabulary, text, circular=True).code == "circular_not_possible"

    @given(text=st.text("ACGTN", min_size=3, max_size=30), k=st.integers(1, 3))
    def test_a_token_for_each_base_and_a_turn_turns_the_tokens(self, text, k):
        ids = encode(kmers(k), text, self.WRAP).ids
        assert len(ids) == len(text)
        assert encode(kmers(k), text[1:] + text[:1], self.WRAP).ids == ids[1:] + ids[:1]


class TestPieces:
    """DNABERT-1: [CLS] and [SEP] around every 510 tokens."""

    VOCABULARY = kmers(max_piece_tokens=510)

    @pytest.mark.parametrize(
        ("num_tokens", "pieces"),
        [
            (0, [0]),
            (509, [509]),
            (510, [510, 0]),
            (511, [510, 1]),
            (1019, [510, 509]),
            (1020, [510, 510, 0]),
        ],
    )
    def test_pieces_of_510(self, num_tokens, pieces):
        text = "A" * (num_tokens + 2 if num_tokens else 0)
        row = encode(self.VOCABULARY, text)
        assert row.ids == [i for piece in pieces for i in (CLS, *[FIRST] * piece, SEP)]
        assert row.num_tokens == len(row.ids)
        assert encode(self.VOCABULARY, text, BARE).ids == [FIRST] * num_tokens

    def test_the_content_is_cut_until_all_templates_fit(self):
        """510 tokens need two templates, 514 ids; 513 ids hold 509 tokens and one template."""
        text = "A" * 1000
        for max_length, kept in ((1002, 998), (514, 510), (513, 509), (511, 509), (510, 508)):
            row = encode(self.VOCABULARY, text, EncodeOptions(max_length=max_length))
            assert row.kept == (0, kept)
            assert len(row.ids) <= max_length
            assert row.num_tokens == 1002
        assert refusal(self.VOCABULARY, text, max_length=1).code == "max_length_too_small"


class TestWords:
    """DNABERT-1 also takes k-mers that are already apart."""

    VOCABULARY = kmers(whitespace="words")

    def test_words_are_kmers(self):
        assert shown(self.VOCABULARY, " ACG\tGTA  ANA\n") == "ACG GTA [UNK]"
        assert spans(self.VOCABULARY, " ACG\tGTA  ANA\n") == [(1, 4), (5, 8), (10, 13)]

    def test_without_white_space_it_is_a_sequence(self):
        assert shown(self.VOCABULARY, "ACGT") == "ACG CGT"
        assert shown(self.VOCABULARY, "MASK") == "[UNK] [UNK]"

    def test_special_tokens_are_words(self):
        assert shown(self.VOCABULARY, "ACG [MASK] [SEP]") == "ACG [MASK] [SEP]"
        assert refusal(self.VOCABULARY, "é ACG", special="match").where == "byte 0"
        error = refusal(self.VOCABULARY, "ACG [MASK]", special="refuse")
        assert (error.code, error.where) == ("special_token_refused", "byte 4")
        error = refusal(self.VOCABULARY, "ACG [MASK]", special="plain")
        assert (error.code, error.where) == ("not_a_kmer", "byte 4")

    def test_a_word_of_another_length_is_refused_with_its_place(self):
        error = refusal(self.VOCABULARY, "ACG AAA AAAA")
        assert error == RowError("not_a_kmer", "'AAAA' has 4 letters; words must have 3", "byte 8")


class TestWordsTakenApart:
    """Words that BERT's basic tokenizer splits, which DNABERT-1's class applies to k-mers."""

    VOCABULARY = kmers(whitespace="words")

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("ACG-TAC", "ACG [UNK]*2 [UNK]*3 [UNK]*2 TAC"),
            ("A-C ACG", "[UNK]*3 ACG"),
            ("--- ACG", "[UNK]*3 ACG"),
            ("AC* A[C", "[UNK]*2 [UNK]*3"),
            ("[MASK]", "[UNK]*2 [UNK] [UNK] [UNK]*2"),
            ("ACGNTRC", "ACG [UNK] [UNK] [UNK] [UNK]"),
            ("ACé ACG", "[UNK] ACG"),
            ("A\u00c7G ACG", "ACG ACG"),
            ("A\uff0cG ACG", "[UNK]*3 ACG"),
            ("A\0C ACG", "[UNK] ACG"),
            ("\0\0\0 ACG", "ACG"),
            ("\x1c\x85\ufffd", ""),
            ("ACG\u3000CGT\u2028GTA\u00a0TAC", "ACG CGT GTA TAC"),
        ],
    )
    def test_pieces_have_ids_of_their_own(self, text, wanted):
        words = [word.partition("*") for word in wanted.split()]
        ids = " ".join(" ".join([word] * int(times or 1)) for word, _, times in words)
        assert shown(self.VOCABULARY, text) == ids

    def test_each_piece_has_the_place_of_its_kmer(self):
        assert spans(self.VOCABULARY, "ACG-T") == [(0, 3), *[(1, 4)] * 2, *[(2, 5)] * 3]
        assert spans(self.VOCABULARY, "ACG A-C") == [(0, 3), *[(4, 7)] * 3]

    def test_a_control_that_bert_leaves_out_parts_no_words(self):
        error = refusal(self.VOCABULARY, "ACG\x1cTAC ACG")
        assert (error.code, error.where) == ("not_a_kmer", "byte 0")

    def test_on_the_other_strand_and_around_a_circle(self):
        turned = encode(self.VOCABULARY, "A-CG", replace(BARE, reverse_complement=True, spans=True))
        assert turned.spans == [(1, 4)] * 2 + [(0, 3)] * 3
        circular = encode(self.VOCABULARY, "ACG-", replace(BARE, circular=True))
        assert circular.ids == encode(self.VOCABULARY, "ACG", BARE).ids + [UNK] * (2 + 3 + 2)

    def test_a_special_token_inside_a_kmer_counts_where_the_text_may_hold_one(self):
        five = kmers(k=5, whitespace="words")
        assert shown(five, "ACGTA[SEP]").endswith("[SEP]")
        assert shown(five, "[SEP] ACGTA") == "[SEP] ACGTA"
        plain = encode(five, "[SEP] ACGTA", replace(BARE, special="plain")).ids
        assert len(plain) == 4
        error = refusal(five, "A[SEP]", special="refuse")
        assert (error.code, error.where) == ("special_token_refused", "byte 1")


class TestCharacters:
    def test_characters_and_unknown(self):
        assert shown(characters(), "ACéa N") == "A C [UNK] [UNK] [UNK] N"
        assert spans(characters(), "éA") == [(0, 2), (2, 3)]
        assert encode(characters(), "A").ids == [5, SEP]

    def test_upper_case_first(self):
        assert shown(characters("upper"), "acgtn") == "A C G T N"
        assert shown(characters("upper"), "ﬆ") == "[UNK] T"  # One character, two letters: ST.
        assert spans(characters("upper"), "ﬆa") == [(0, 3), (0, 3), (3, 4)]

    def test_special_tokens_are_matched(self):
        assert shown(characters(), "A[MASK]C") == "A [MASK] C"
        assert shown(characters(), "[M", EncodeOptions(special="plain")) == "[UNK] [UNK] [SEP]"

    def test_bytes(self):
        ids = tuple((chr(byte), byte) for byte in range(256))
        tokens = tuple(bytes([byte]) for byte in range(256))
        vocabulary = Vocabulary(tokens, Characters(ids, unit="byte"))
        assert encode(vocabulary, "Aé\n").ids == [65, 0xC3, 0xA9, 10]
        assert encode(vocabulary, "Aé\n").spans == [(0, 1), (1, 2), (2, 3), (3, 4)]


class TestOtherStrand:
    OTHER = EncodeOptions(add_special_tokens=False, reverse_complement=True)

    def test_letters(self):
        assert reverse_complement_text("AACGTURYSWKMBDHVN-x") == "x-NBDHVKMWSRYAACGTT"
        assert reverse_complement_text("aacgturyswkmbdhvn") == "nbdhvkmwsryaacgtt"

    def test_spans_lie_in_the_text_as_sent(self):
        """AACGT becomes ACGTT: ACG is what AACGT says backwards at 2..5."""
        assert shown(kmers(), "AACGT", self.OTHER) == "ACG CGT GTT"
        assert spans(kmers(), "AACGT", self.OTHER) == [(2, 5), (1, 4), (0, 3)]

    def test_a_circular_sequence_wraps_at_its_begin(self):
        options = replace(self.OTHER, circular=True)
        assert shown(kmers(), "AACGT", options) == "ACG CGT GTT TTA TAC"
        assert spans(kmers(), "AACGT", options) == [(2, 5), (1, 4), (0, 3), (0, 2), (0, 1)]

    def test_truncation_counts_along_the_other_strand(self):
        options = replace(self.OTHER, max_length=1)
        assert spans(kmers(), "AACGT", options) == [(2, 5)]

    def test_text_that_is_no_sequence_is_refused(self):
        error = refusal(kmers(), "ACGéA", reverse_complement=True)
        assert (error.code, error.where) == ("not_a_sequence", "byte 3")

    def test_places_of_refusals_lie_in_the_text_as_sent(self):
        """AAA CG becomes CG TTT; the first letter of this CG came from byte 5."""
        error = refusal(kmers(whitespace="words"), "AAA CG", reverse_complement=True)
        assert (error.code, error.where) == ("not_a_kmer", "byte 5")
        error = refusal(characters(), "", max_length=0, reverse_complement=True)
        assert (error.code, error.where) == ("max_length_too_small", "")

    @given(text=st.text("ACGTN", max_size=30))
    def test_twice_is_the_sequence_again(self, text):
        assert reverse_complement_text(reverse_complement_text(text)) == text
        row, other = (
            encode(kmers(), text, BARE),
            encode(kmers(), reverse_complement_text(text), self.OTHER),
        )
        assert row.ids == other.ids


class TestDecode:
    def test_kmers_add_their_new_letters(self):
        vocabulary = kmers()
        for text in ("ACG", "ACGTTTTTA"):
            assert decode(vocabulary, encode(vocabulary, text, BARE).ids) == text.encode()
        assert decode(vocabulary, encode(vocabulary, "ACGT").ids) == b"[CLS]ACGT[SEP]"
        assert decode(vocabulary, encode(vocabulary, "ACGT").ids, True) == b"ACGT"

    def test_kmers_that_do_not_agree_stand_whole(self):
        acg, gta = encode(kmers(), "ACG", BARE).ids + encode(kmers(), "GTA", BARE).ids
        assert decode(kmers(), [acg, gta]) == b"ACGGTA"
        assert decode(kmers(stride=2), [acg, gta]) == b"ACGTA"
        assert decode(kmers(stride=3), [gta, gta]) == b"GTAGTA"

    def test_skipped_template_tokens_do_not_part_kmers_but_unknown_ones_do(self):
        a, b = encode(kmers(), "ACGT", BARE).ids
        assert decode(kmers(), [CLS, a, SEP, CLS, b, SEP], skip_special_tokens=True) == b"ACGT"
        assert decode(kmers(), [CLS, a, SEP, CLS, b, SEP]) == b"[CLS]ACG[SEP][CLS]CGT[SEP]"
        assert decode(kmers(), [a, UNK, b], skip_special_tokens=True) == b"ACGCGT"
        assert decode(kmers(), [a, UNK, b]) == b"ACG[UNK]CGT"

    def test_runs_and_letters(self):
        vocabulary = kmers(frame="run", stride=3, remainder="letters")
        assert decode(vocabulary, encode(vocabulary, "ACGTANNA", BARE).ids) == b"ACGTANNA"

    def test_bpe_and_characters_are_joined(self):
        vocabulary = bpe("a b ab", "a+b")
        assert decode(vocabulary, [2, 0, 1]) == b"abab"
        assert decode(characters(), [5, UNK, 6, SEP]) == b"A[UNK]C[SEP]"
        assert decode(characters(), [5, UNK, 6, SEP], skip_special_tokens=True) == b"AC"

    def test_tokens_that_are_not_special_are_never_skipped(self):
        vocabulary = replace(bpe("a <x>"), special_tokens=(SpecialToken("<x>", 1, special=False),))
        assert decode(vocabulary, [0, 1], skip_special_tokens=True) == b"a<x>"

    @pytest.mark.parametrize("token_id", [-1, 3, 1, 2**40])
    def test_an_id_that_means_nothing_is_refused_with_its_place(self, token_id):
        vocabulary = Vocabulary((b"a", None, b"b"), Bpe(merges=()))
        with pytest.raises(RowRefused) as refused:
            decode(vocabulary, [0, 2, token_id])
        error = refused.value.error
        assert (error.code, error.where) == ("id_out_of_range", "ids[2]")
        assert error.message == f"id {token_id} is not an id of this vocabulary of 3 ids"


def test_an_upstream_model_is_refused_by_the_reference():
    vocabulary = Vocabulary((b"a",), Upstream("{}", "it is a Unigram model"))
    with pytest.raises(ValueError, match="it is a Unigram model"):
        encode(vocabulary, "a")
    with pytest.raises(ValueError, match="it is a Unigram model"):
        decode(vocabulary, [0])
