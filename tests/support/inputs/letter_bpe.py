"""Draws random BPE vocabularies of letters, and texts of their letters."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

NASTY = (
    *("A" * size for size in (1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097)),
    *("G" * first + "A" * 3000 + "C" for first in (1, 7)),
    "G" + "CA" * 2500,
    "T" + "CA" * 2500 + "G" * 700 + "TTAGGG" * 300,
    "N" * 5000,
    "ACG" + "N" * 9 + "T" + "N" * 10 + "ANNCNA" * 80,
    "acgtACGT" * 150,
    "ACGTRYKMSWBDHVNU" * 60,
    "ACGT\r\n" * 100,
    " \t" * 300,
)


def vocabulary_of(
    letters: str,
    merges: list[tuple[str, str]],
    *,
    unknown: bool = True,
    pretokenizer: str = "none",
    normalizers: tuple[Normalizer, ...] = (),
) -> Vocabulary:
    """Make a vocabulary of letters; <unk> and <mask> come first."""
    tokens = list(dict.fromkeys(["<unk>", "<mask>", *letters, *(a + b for a, b in merges)]))
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    model = Bpe(
        tuple((ids[a], ids[b]) for a, b in merges),
        byte_level=False,
        unknown_id=0 if unknown else None,
    )
    special = (SpecialToken("<unk>", 0, matched=False), SpecialToken("<mask>", 1))
    return Vocabulary(
        tuple(token.encode() for token in tokens),
        model,
        special,
        normalizers,
        pretokenizer,
        prefix=(1,),
        suffix=(0,),
    )


def unknown_as(vocabulary: Vocabulary, letter: bytes) -> Vocabulary:
    """Return a vocabulary in which letters without an id have the id of `letter`."""
    unknown_id = vocabulary.tokens.index(letter)
    return replace(vocabulary, model=replace(vocabulary.model, unknown_id=unknown_id))


@st.composite
def merge_lists(draw: st.DrawFn, letters: str) -> list[tuple[str, str]]:
    """Draw 4 to 60 merges, in the order of training or in any; several may make the same token."""
    symbols = [*letters]
    merges: dict[tuple[str, str], None] = {}
    for _ in range(draw(st.integers(4, 60))):
        pair = draw(st.sampled_from(symbols)), draw(st.sampled_from(symbols[-8:]))
        pair = pair[::-1] if draw(st.booleans()) else pair
        if len(pair[0] + pair[1]) <= 64:
            merges[pair] = None
            symbols.append(pair[0] + pair[1])
    return list(merges) if draw(st.booleans()) else draw(st.permutations(list(merges)))


def repeats(letters: str) -> st.SearchStrategy[str]:
    """Draw texts of repeated short units."""
    unit = st.tuples(st.text(letters, min_size=1, max_size=5), st.integers(1, 150))
    return st.lists(unit, max_size=8).map(lambda runs: "".join(u * n for u, n in runs))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Vocabulary, list[str]]:
    letters = draw(st.sampled_from(["AC", "ACG", "ACGT", "acgt", "ACGTN", "ACGTNRY"]))
    vocabulary = vocabulary_of(
        letters + draw(st.sampled_from(["", "-", "-x"])),
        draw(merge_lists(letters)),
        unknown=draw(st.integers(0, 3)) > 0,
        pretokenizer=draw(st.sampled_from(["none", "whitespace", "whitespace_split", "isolate:-"])),
        normalizers=draw(
            st.sampled_from(
                [
                    (),
                    (Normalizer("strip"),),
                    (Normalizer("replace_regex", "N{10,}", "-"),),
                    (Normalizer("strip"), Normalizer("replace_regex", "N{3,}", "-")),
                    (Normalizer("lowercase"), Normalizer("strip")),
                    (Normalizer("replace", "C", "A"), Normalizer("replace_regex", "N{3,}", "-")),
                    (Normalizer("replace", "A", "m"), Normalizer("lowercase")),
                ]
            )
        ),
    )
    if draw(st.integers(0, 4)) == 0:
        vocabulary = unknown_as(vocabulary, draw(st.sampled_from([*letters])).encode())
    other = st.text(letters * 4 + "aCcN- \t\n\x00\x7f\x85\u3000é中É🙂", max_size=300)
    marked = st.lists(st.sampled_from([*letters, "<mask>", " ", "N" * 11]), max_size=90)
    text = repeats(letters) | st.text(letters, max_size=700) | other | marked.map("".join)
    return vocabulary, draw(st.lists(text, max_size=4))
