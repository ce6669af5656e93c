"""Random vocabularies of characters and k-mers, random sequences, and random options."""

from __future__ import annotations

from hypothesis import strategies as st

from vocabularies.batch.batch import EncodeOptions
from vocabularies.model.types import Characters, Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary

LETTERS = st.sampled_from(["ACGT", "ATCG", "TGCA", "AC", "ACGTN", "A", "acgt"])
SEQUENCES = (
    st.text("ACGT", max_size=40)
    | st.text("ACGTNacgt R", max_size=30)
    | st.text("ACGN \n\x1fé<mask>", max_size=20)
    | st.text("ACGT-*", max_size=30)
    | st.lists(st.text("ACG", min_size=1, max_size=4)).map(" ".join)
)
OPTIONS = st.builds(
    EncodeOptions,
    add_special_tokens=st.booleans(),
    special=st.sampled_from(["match", "plain", "refuse"]),
    max_length=st.none() | st.integers(0, 12),
    truncation_side=st.sampled_from(["right", "left"]),
    reverse_complement=st.booleans(),
    circular=st.sampled_from([None, None, True, False]),
    spans=st.booleans(),
)


@st.composite
def kmer_vocabularies(draw):
    letters, k = draw(LETTERS), draw(st.integers(1, 6))
    frame = draw(st.sampled_from(["sequence", "run"]))
    first_id = draw(st.integers(2, 5))
    words = [""]
    for _ in range(k):
        words = [word + letter for word in words for letter in letters]
    extra = dict.fromkeys([*letters, *draw(st.sampled_from(["", "N", "NR"]))])
    tokens = [b"<unk>", b"<mask>", *(b"<%d>" % i for i in range(2, first_id))]
    tokens += [word.encode() for word in words]
    letter_ids = tuple((letter, len(tokens) + i) for i, letter in enumerate(extra))
    tokens += [letter.encode() for letter in extra]
    mask = SpecialToken("<mask>", 1, special=draw(st.booleans()), matched=draw(st.booleans()))
    model = Kmers(
        k,
        first_id,
        0,
        letters,
        stride=k if frame == "run" else draw(st.integers(1, k)),
        frame=frame,
        letter_ids=letter_ids,
        remainder=draw(st.sampled_from(["drop", "letters"])),
        case=draw(st.sampled_from(["keep", "upper"])),
        whitespace=draw(st.sampled_from(["letter", "skip", "words"])),
        circular=draw(st.booleans()),
        junction=draw(st.sampled_from(["append", "prepend"])),
        max_piece_tokens=draw(st.none() | st.integers(1, 5)),
    )
    prefix = draw(st.sampled_from([(), (0,), (0, 1)]))
    return Vocabulary(tuple(tokens), model, (mask,), prefix=prefix, suffix=prefix[:1])


@st.composite
def character_vocabularies(draw):
    letters = draw(st.sets(st.sampled_from("ACGTNacgté中ß"), min_size=1))
    unit = draw(st.sampled_from(["codepoint", "byte"]))
    letters = sorted(c for c in letters if unit == "codepoint" or ord(c) < 256)
    tokens = [b"<unk>", b"<mask>", *(letter.encode() for letter in letters)]
    letter_ids = tuple((letter, i + 2) for i, letter in enumerate(letters))
    model = Characters(letter_ids, 0, unit, draw(st.sampled_from(["keep", "upper"])))
    mask = SpecialToken("<mask>", 1, matched=draw(st.booleans()))
    return Vocabulary(tuple(tokens), model, (mask,), suffix=draw(st.sampled_from([(), (1,)])))
