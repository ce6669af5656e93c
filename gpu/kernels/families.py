"""Families of vocabularies: the kernels of each kind of vocabulary, in the order in which they run.

gpu/vocabulary/device_tables.py chooses the family of a vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from gpu.kernels.catalog import KERNELS

SPECIAL = (
    ("find_special", "enter_special", "accept_special"),
    ("find_special_again", "enter_special_again", "accept_special_again"),
)
"""The kernels of each round: special tokens in the text, then those in the text between them."""

PRETOKENIZE = ("pretokenize", "map_tiles", "enter_runs", "redo_tiles")
SPLIT = (
    "split_at_certain",
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
    """The kernels of one kind of vocabulary; other kernels are shared by all families.

    Attributes:
        name: the name of the family.
        layout: the layout of its workspaces (`workspace_layout.LAYOUTS`).
        between: the kernels that run between the two rounds of special tokens.
        content: the kernels that compute id_offsets from text, hard bits and accepted special
            tokens.
        write: the kernels that write ids, from id_offsets.
        write16: the kernels that write ids of 16 bits to `narrow_ids`; (): the ids of `write` are
            narrowed instead.
        spans: the kernels that compute spans after post-processing.
        decode: the kernels that decode ids to bytes.
        fused: the kernels that run all stages in one launch: of one block, of a cluster, and of a
            grid. If they set STATUS_FALLBACK, other kernels finish the batch. (): there are none.
        parts: the fused kernel for small DNA batches that need only ids (cuda/dna/parts). If it
            sets STATUS_FALLBACK, the single kernels encode the batch. "": there is none.
        plain: faster kernels that compute id_offsets and ids of most batches. If they set
            STATUS_FALLBACK, `content` and `write` run after them. (): there are none.
        even: the kernels that replace `plain` if all rows have the same length
            (`equal_length_rows`).
        rewrite: the kernels of `content` that rewrite the text as letters; they are omitted if
            every byte is a letter.
        fetch: the kernel that computes ids from text in pinned memory, if every letter has its own
            id; "": there is none.
        augments_rows: whether rows may be circular, reverse complements, or augmented
            (cuda/batch/augment_rows.cuh).
        takes_bytes: whether every byte is a letter, so that rows need not be UTF-8.
        answered: the kernels that `compact_to_host` replaces in a small batch without
            post-processing; (): it replaces none.
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
    parts: str = ""
    answered: tuple[str, ...] = ()

    @property
    def kernels(self) -> set[str]:
        """All kernels of the family."""
        names = {"augment_rows"} if self.augments_rows else set()
        values = (getattr(self, field.name) for field in fields(self))
        names.update(*(value if isinstance(value, tuple) else [value] for value in values))
        return names & KERNELS.keys()


TEXT = Family(
    "text",
    "text",
    content=(*PRETOKENIZE, "clear_special", *SPLIT, *MERGE, *COUNT),
    write=("compact",),
    write16=("compact16",),
    spans=("span_begins", "post_process_spans"),
    fused=("encode_block", "encode_cluster", "encode_grid"),
    answered=("sum_tiles", "row_offsets", "compact"),
)
"""Byte-level BPE after a pretokenizer."""
COMPOSED = replace(TEXT, name="composed", between=("check_composed",))
"""Byte-level BPE after NFC, for batches that NFC does not change."""

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
    spans=("post_process_own_spans",),
    plain=("write_letters",),
    rewrite=REWRITE,
    fetch="fetch_letters",
    augments_rows=True,
)
"""One id for each letter."""
BYTES = replace(CHARACTERS, takes_bytes=True)
"""One id for each byte; its workspaces are those of CHARACTERS."""
KMERS = replace(
    CHARACTERS,
    name="kmers",
    plain=("place_neighbours", "place_rows", "write_kmers"),
    fetch="",
    even=("write_even_kmers",),
    decode=("decode_kmers", "decode_kmers_again"),
)
"""One id for the k letters at every letter."""
STRIDED_KMERS = replace(
    KMERS,
    name="strided_kmers",
    plain=("place_rows", "write_strided"),
    even=("write_even_strided",),
)
"""One id for the k letters at every stride-th letter."""

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
    spans=("post_process_own_spans",),
    augments_rows=True,
)
"""BPE over letters; only motifs and special tokens split the text."""
FAMILIES = {
    family.name: family for family in (TEXT, COMPOSED, CHARACTERS, KMERS, STRIDED_KMERS, DNA)
}


def dna_family(*, has_whole: bool, maps: bool, walk: tuple[str, ...], parts: str = "") -> Family:
    """Return the family DNA with the kernels that a vocabulary needs.

    Args:
        has_whole: whether the text between two borders may be a token that no merges produce.
        maps: whether normalizers replace some letters by others before the merges.
        walk: the kernels that find paths through windows.
        parts: the fused kernel of small batches, "" if there is none.
    """
    at = DNA.content.index("walk_windows")
    content = (*DNA.content[:at], *walk, *DNA.content[at + 1 :])
    return replace(
        DNA,
        parts="" if has_whole or maps else parts,
        between=("map_letters",) if maps else (),
        content=(("accept_whole", *content) if has_whole else content),
    )


def family_on(family: Family, runs: Callable[[str], bool]) -> Family:
    """Return the family with kernels that a device can run in place of those that it cannot.

    Args:
        family: the family of a vocabulary.
        runs: whether the device can run a kernel.
    """
    content = family.content
    if not runs("forward_windows_copied"):
        content = tuple(name.removesuffix("_copied") for name in content)
    fused = family.fused
    if fused and not runs(fused[1]):  # No clusters: a grid does it.
        fused = (fused[0], fused[2], fused[2])
    parts = family.parts if family.parts and runs(family.parts) else ""
    if (content, fused, parts) == (family.content, family.fused, family.parts):
        return family
    return replace(family, content=content, fused=fused, parts=parts)


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
    """Return the kernels from text and row_begins on the device to ids and id_offsets.

    Args:
        family: the family of the vocabulary.
        num_rounds: rounds of special tokens, see gpu/vocabulary/special_tokens.py.
        validate: whether rows must be checked for UTF-8.
        count_only: whether only id_offsets are computed.
        augmented: whether rows are augmented before they are encoded.
        id_bits: the bits of an id; ids of fewer than 32 bits are written to `narrow_ids`.
    """
    kernels = ["augment_rows"] if augmented else []
    kernels += ["mark_rows"]
    kernels += ["validate"] if validate else []
    kernels += SPECIAL[0] if num_rounds > 0 else ()
    kernels += family.between
    kernels += SPECIAL[1] if num_rounds > 1 else ()
    kernels += [name for name in family.content if num_rounds or name != "clear_special"]
    kernels += () if count_only else write_kernels(family, id_bits)
    return tuple(kernels)


def write_kernels(family: Family, id_bits: int) -> tuple[str, ...]:
    """Return the kernels from id_offsets to ids, or to `narrow_ids` for fewer than 32 bits."""
    if id_bits == 16 and family.write16:
        return family.write16
    return family.write if id_bits == 32 else (*family.write, "narrow_ids")


def plain_kernels(
    family: Family,
    *,
    id_bits: int = 32,
    augmented: bool = False,
    even: bool = False,
) -> tuple[str, ...]:
    """Return the plain kernels of a family; they write ids of fewer than 32 bits to `narrow_ids`.

    `even`: those for rows of one length.
    """
    augment = ("augment_rows",) if augmented else ()
    *first, write = family.even if even else family.plain
    return (*augment, *first, write if id_bits == 32 else f"{write}{id_bits}")


def letter_kernels(family: Family, *, id_bits: int = 32) -> tuple[str, ...]:
    """Return the kernels that encode a batch whose bytes are letters, so that none is rewritten."""
    content = tuple(name for name in family.content if name not in family.rewrite)
    return ("clear_faults", *content, *write_kernels(family, id_bits))


def post_process_kernels(
    family: Family = TEXT, *, spans: bool, count_only: bool = False
) -> tuple[str, ...]:
    """Return the kernels that add begin and end tokens and truncate, after `encode_kernels`."""
    if count_only:
        return ("post_process_rows",)
    return ("post_process_rows", "post_process_ids", *(family.spans if spans else ()))


@lru_cache
def answer_kernels(
    family: Family, encode: tuple[str, ...], *, post_processed: bool
) -> tuple[str, ...]:
    """Return the kernels of a small batch: those of `encode`, and those that store the answer."""
    if post_processed:
        return (*encode, *post_process_kernels(family, spans=False), "store_answer")
    if not family.answered:
        return (*encode, "store_answer")
    replaced = family.answered
    return (*[name for name in encode if name not in replaced], "compact_to_host")
