"""Draws random motif banks, vocabularies that split at them, and texts full of their parts."""

from __future__ import annotations

from hypothesis import strategies as st

from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

NORMALIZERS = {
    "none": (),
    "lowercase": (Normalizer("lowercase"),),
    "rna": (Normalizer("replace", "U", "T"),),
    "strip": (Normalizer("strip"),),
    "runs": (Normalizer("replace_regex", "N{5,}", "-"),),
}


@st.composite
def motif_banks(draw: st.DrawFn, letters: str, max_size: int = 8) -> list[str]:
    """Draw motifs that overlap, begin with each other and contain each other."""
    bank: list[str] = []
    for _ in range(draw(st.integers(1, max_size))):
        motif = draw(st.text(letters, min_size=1, max_size=6))
        if bank:
            other = draw(st.sampled_from(bank))
            cut = draw(st.integers(0, len(other)))
            motif = draw(st.sampled_from([motif, other[:cut], other[cut:], other[cut:] + motif]))
        if motif and len(motif) <= 24:
            bank.append(motif)
    return list(dict.fromkeys(bank)) or [letters[0]]


def motif_vocabulary(
    letters: str,
    merges: list[tuple[str, str]],
    motifs: list[str],
    *,
    byte_level: bool = False,
    unknown: bool = True,
    specials: tuple[str, ...] = ("<mask>",),
    normalizers: tuple[Normalizer, ...] = (),
) -> Vocabulary:
    """Make a vocabulary of special tokens, letters, merged tokens and motifs, in this order."""
    first = ["<unk>", *specials]
    known = [bytes([byte]) for byte in range(256)] if byte_level else [*map(str.encode, letters)]
    made = [*(a + b for a, b in merges), *motifs]
    tokens = list(dict.fromkeys([*map(str.encode, first), *known, *map(str.encode, made)]))
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    model = Bpe(
        tuple((ids[a.encode()], ids[b.encode()]) for a, b in merges),
        byte_level=byte_level,
        ignore_merges=True,
        unknown_id=0 if unknown and not byte_level else None,
    )
    special = [SpecialToken("<unk>", 0, matched=False)]
    special += [SpecialToken(content, 1 + i) for i, content in enumerate(specials)]
    return Vocabulary(
        tuple(tokens),
        model,
        tuple(special),
        normalizers,
        "motifs",
        tuple(motifs),
        prefix=(0,),
        suffix=(0,),
    )


@st.composite
def merges_of(draw: st.DrawFn, letters: str) -> list[tuple[str, str]]:
    """Draw up to 20 merges, in the order of training or any other."""
    symbols = [*letters]
    merges: dict[tuple[str, str], None] = {}
    for _ in range(draw(st.integers(0, 20))):
        pair = draw(st.sampled_from(symbols)), draw(st.sampled_from(symbols[-6:]))
        if len(pair[0] + pair[1]) <= 16:
            merges[pair] = None
            symbols.append(pair[0] + pair[1])
    return list(merges) if draw(st.booleans()) else draw(st.permutations(list(merges)))


def motif_texts(letters: str, motifs: list[str], more: str = "") -> st.SearchStrategy[str]:
    """Draw texts of motifs, their parts, letters and special tokens, mixed or repeated."""
    parts = [motif[:-1] for motif in motifs] + [motif[1:] for motif in motifs]
    pieces = [*motifs, *filter(None, parts), *letters, "<mask>", "<unk>", "N" * 6, *more]
    mixed = st.lists(st.sampled_from(pieces), max_size=60).map("".join)
    runs = st.lists(st.tuples(st.sampled_from(pieces), st.integers(1, 40)), max_size=6)
    return mixed | runs.map(lambda runs: "".join(piece * n for piece, n in runs))


@st.composite
def motif_cases(
    draw: st.DrawFn, *, byte_level: bool | None = None, normalizers: tuple[str, ...] = ()
) -> tuple[Vocabulary, list[str]]:
    """Draw a vocabulary, with or without one of these normalizers, and texts for it."""
    letters = draw(st.sampled_from(["AC", "ACGT", "ACGTN", "acgt", "ACé中"]))
    level = draw(st.booleans()) if byte_level is None else byte_level
    steps = NORMALIZERS[draw(st.sampled_from(["none", *normalizers]))]
    if any(step.kind == "lowercase" for step in steps):
        letters = letters.lower()
    other = draw(st.sampled_from(["", "-", "x-"]))
    motifs = draw(motif_banks(letters + other[:1]))
    specials = draw(st.sampled_from([(), ("<mask>",), ("<mask>", "<m"), ("CA-",)]))
    merges = draw(merges_of(letters)) if letters.isascii() or not level else []
    vocabulary = motif_vocabulary(
        letters + other,
        merges,
        [motif for motif in motifs if motif not in specials],
        byte_level=level,
        unknown=draw(st.integers(0, 3)) > 0,
        specials=specials,
        normalizers=steps,
    )
    more = "ACU \n" if draw(st.booleans()) else ""
    texts = draw(st.lists(motif_texts(letters, motifs, more), min_size=1, max_size=4))
    return vocabulary, texts
