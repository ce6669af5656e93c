"""Families of vocabularies: which kernels make ids of a text, and in which order they run.

Knows no shapes and no tables; gpu/vocabulary/device_tables.py says which family a vocabulary is of.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

from gpu.kernels.catalog import KERNELS

SPECIAL = (
    ("find_special", "enter_special", "accept_special"),
    ("find_special_again", "enter_special_again", "accept_special_again"),
)
"""By round: special tokens in the text, and in what these leave of it."""

PRETOKENIZE = ("pretokenize", "map_tiles", "enter_runs", "redo_tiles")
CUT = (
    "cut_certain",
    "find_long",
    "windows",
    "check_windows",
    "write_borders",
    "last_pieces",
)
MERGE = ("look_up", "merge")
COUNT = ("count_tiles", "sum_tiles", "row_offsets")


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """The kernels of one kind of vocabulary, between those that all of them share.

    Attributes:
        name: of the family.
        layout: of its workspaces (`workspace_layout.LAYOUTS`).
        between: those between the two rounds of special tokens.
        content: from text, hard bits and accepted special tokens to id_offsets.
        write: from there to ids.
        write16: the same to ids of 16 bits in `narrow_ids`; () where a kernel narrows those of
            `write`.
        spans: from framed rows to spans.
        decode: from ids to bytes.
        fused: kernels that do all of it in one launch, unless STATUS_FALLBACK: of one block, of a
            cluster, and of a grid; () where there are none.
        bases: a kernel that is tried before `fused`, for batches that ask for nothing but ids;
            where it sets STATUS_FALLBACK the others follow. "" where there is none.
        plain: from rows to id_offsets and ids, for most batches; where they set STATUS_FALLBACK all
            others follow. () where there are none such.
        even: instead of `plain`, for rows of one length (`equal_length_rows`).
        rewrite: those of `content` that rewrite the text; not needed where its bytes are letters.
        fetch: from text in pinned memory to ids, where every letter is one and `plain` would do;
            "" where there is none.
        augments_rows: rows may ask for the other strand or a circle.
        takes_bytes: a letter is a byte, whatever it is, so rows need not be UTF-8.
        answered: kernels that `compact_to_host` replaces in a small batch without framing: from the
            ids of each tile's parts to the answer. () where it replaces none.
    """

    name: str
    layout: str
    content: tuple[str, ...]
    write: tuple[str, ...]
    spans: tuple[str, ...]
    decode: tuple[str, ...] = ("decode_spell", "decode_spell_again")
    fused: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    even: tuple[str, ...] = ()
    rewrite: tuple[str, ...] = ()
    fetch: str = ""
    write16: tuple[str, ...] = ()
    augments_rows: bool = False
    takes_bytes: bool = False
    between: tuple[str, ...] = ()
    bases: str = ""
    answered: tuple[str, ...] = ()

    @property
    def kernels(self) -> set[str]:
        """Those of its own, whatever a batch asks for."""
        names = {"augment_rows"} if self.augments_rows else set()
        values = (getattr(self, field.name) for field in fields(self))
        names.update(*(value if isinstance(value, tuple) else [value] for value in values))
        return names & KERNELS.keys()


TEXT = Family(
    "text",
    "text",
    content=(*PRETOKENIZE, "clear_special", *CUT, *MERGE, *COUNT),
    write=("compact",),
    write16=("compact16",),
    spans=("span_begins", "frame_spans"),
    fused=("encode_block", "encode_cluster", "encode_grid"),
    answered=("sum_tiles", "row_offsets", "compact"),
)
"""Byte-level BPE behind a pretokenizer."""
COMPOSED = replace(TEXT, name="composed", between=("check_composed",))
"""The same behind NFC, of batches that it leaves as they are."""

REWRITE = ("begin_letters", "clear_special", "expand_letters", "place_letters")
PLACES = (
    "mark_letter_rows",
    "find_breaks",
    "enter_tiles",
    "find_places",
    "sum_letter_tiles",
    "letter_offsets",
)
CHARACTERS = Family(
    "characters",
    "kmers",
    content=(*REWRITE, *PLACES),
    write=("write_places",),
    spans=("frame_own_spans",),
    plain=("write_letters",),
    rewrite=REWRITE,
    fetch="fetch_letters",
    augments_rows=True,
)
"""An id for each letter."""
BYTES = replace(CHARACTERS, takes_bytes=True)
"""The same where each byte is a letter; the workspaces are the same."""
KMERS = replace(
    CHARACTERS,
    name="kmers",
    plain=("place_neighbours", "place_rows", "write_kmers"),
    fetch="",
    even=("write_even_kmers",),
    decode=("decode_kmers", "decode_kmers_again"),
)
"""An id for each letter and those behind it."""
STRIDED_KMERS = replace(
    KMERS,
    name="strided_kmers",
    plain=("place_rows", "write_strided"),
    even=("write_even_strided",),
)
"""An id for every so many letters."""

DNA = Family(
    "dna",
    "dna",
    content=(
        "pack_letters",
        "pack_special",
        "strip_ends",
        "walk_windows",
        "meet_windows",
        "repair_small",
        "repair_large",
        "write_letter_ids",
    ),
    write=(),
    spans=("frame_own_spans",),
    augments_rows=True,
)
"""BPE over letters, which nothing cuts but motifs."""
FAMILIES = {
    family.name: family for family in (TEXT, COMPOSED, CHARACTERS, KMERS, STRIDED_KMERS, DNA)
}


def dna_family(*, has_whole: bool, maps: bool, walk: tuple[str, ...], bases: str = "") -> Family:
    """DNA with what a vocabulary needs; the workspaces are the same.

    Args:
        has_whole: a stretch may be a token that merges do not reach.
        maps: letters become others.
        walk: the kernels that find paths through windows.
        bases: the kernel of batches of bases, "" where there is none.
    """
    at = DNA.content.index("walk_windows")
    content = (*DNA.content[:at], *walk, *DNA.content[at + 1 :])
    return replace(
        DNA,
        bases="" if has_whole or maps else bases,
        between=("map_letters",) if maps else (),
        content=(("accept_whole", *content) if has_whole else content),
    )


@lru_cache
def encode_kernels(
    family: Family = TEXT,
    *,
    num_rounds: int = 0,
    validate: bool = False,
    count_only: bool = False,
    augmented: bool = False,
    id_bits: int = 32,
) -> tuple[str, ...]:
    """From text and row_begins on the device to ids and id_offsets.

    Args:
        family: of the vocabulary.
        num_rounds: rounds of special tokens, see gpu/vocabulary/special_tokens.py.
        validate: whether rows may not be UTF-8.
        count_only: id_offsets without ids.
        augmented: whether rows are not encoded as they were sent.
        id_bits: of an id; those of fewer than 32 are in `narrow_ids`.
    """
    first, again = (SPECIAL[round_] if round_ < num_rounds else () for round_ in (0, 1))
    special = (*first, *family.between, *again)
    kernels = (
        *(("augment_rows",) if augmented else ()),
        "mark_rows",
        *(("validate",) if validate else ()),
        *special,
        *(name for name in family.content if num_rounds or name != "clear_special"),
        *(() if count_only else write_kernels(family, id_bits)),
    )
    return kernels


def write_kernels(family: Family, id_bits: int) -> tuple[str, ...]:
    """From id_offsets to ids; to `narrow_ids` where they have fewer bits than 32."""
    if id_bits == 16 and family.write16:
        return family.write16
    return family.write if id_bits == 32 else (*family.write, "narrow_ids")


def _writing(kernel: str, id_bits: int) -> tuple[str, ...]:
    """A kernel that writes ids of so many bits."""
    return (kernel if id_bits == 32 else f"{kernel}{id_bits}",)


def plain_kernels(
    family: Family,
    *,
    id_bits: int = 32,
    augmented: bool = False,
    even: bool = False,
) -> tuple[str, ...]:
    """What a family tries first; ids of fewer bits than 32 go to `narrow_ids`."""
    *first, write = family.even if even else family.plain
    return (*(("augment_rows",) if augmented else ()), *first, *_writing(write, id_bits))


def letter_kernels(family: Family, *, id_bits: int = 32) -> tuple[str, ...]:
    """As encode_kernels, for a batch whose bytes are letters: it needs not be rewritten."""
    content = (name for name in family.content if name not in family.rewrite)
    return ("clear_faults", *content, *write_kernels(family, id_bits))


def frame_kernels(
    family: Family = TEXT, *, spans: bool, count_only: bool = False
) -> tuple[str, ...]:
    """Begin and end tokens and truncation, behind encode_kernels."""
    if count_only:
        return ("frame_rows",)
    return ("frame_rows", "frame_ids", *(family.spans if spans else ()))


@lru_cache
def answer_kernels(family: Family, encode: tuple[str, ...], *, framed: bool) -> tuple[str, ...]:
    """Those of a small batch: to ids (`encode`), and from there to the answer in pinned memory."""
    if framed:
        return (*encode, *frame_kernels(family, spans=False), "store_answer")
    if not family.answered:
        return (*encode, "store_answer")
    return (*(name for name in encode if name not in family.answered), "compact_to_host")
