"""Makes the trie of special tokens and motifs that cuda/special/trie.cuh walks.

NumPy only. The CPU engine encodes for vocabularies with special tokens that strip white space,
match only single words, or are matched in normalized text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.kernels.job import constant
from gpu.text.nfc_check import only_composes
from vocabularies.model.types import SpecialToken
from vocabularies.model.vocabulary import Vocabulary

UInt32s = NDArray[np.uint32]

MAX_BYTES = constant("MAX_SPECIAL")
MAX_NODES = 1 << 20
MAX_LABEL = 8
NODE_SHIFT, COUNT_SHIFT = constant("EDGE_NODE_SHIFT"), constant("EDGE_COUNT_SHIFT")
LAST_SHIFT = constant("EDGE_LAST_SHIFT")
NO_ID = 0xFFFFFFFF
LOAD = 0.25
MAX_ROUNDS = 2
WHOLE_ROOT = constant("WHOLE_ROOT")


class _Edge(NamedTuple):
    """An edge of the trie: its bytes lead from one node to another, through the numbers between."""

    begin: int
    label: bytes
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class SpecialTables:
    """The tables of special tokens; see cuda/common/job.cuh.

    Attributes:
        special_edges: uint32[slots, 4], a hash table of edges; see cuda/special/trie.cuh.
        special_nodes: uint32[nodes], the id of the token that ends at each node, or NO_ID.
        special_first: uint32[2, 2, 8], for each round one bit for each byte that may be the first
            of a token, and one for each byte that may be the second.
        num_rounds: 0 if there are no such tokens; 1 if all are matched in the text; 2 if some are
            matched only in the text between those of the first round.
    """

    special_edges: UInt32s
    special_nodes: UInt32s
    special_first: UInt32s
    num_rounds: int

    @property
    def special_mask(self) -> int:
        """The number of slots of the hash table of edges, minus 1."""
        return len(self.special_edges) - 1


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Bytes that are matched, and their id.

    `in_plain`: they are also matched in rows whose special tokens are plain text.
    """

    content: bytes
    id: int
    in_plain: bool


@dataclass(slots=True)
class _Node:
    """A node of the trie of single bytes: its children, and the pattern that ends there."""

    children: dict[int, _Node] = field(default_factory=dict)
    token: _Pattern | None = None


def special_tables(
    vocabulary: Vocabulary,
    seed: int,
    whole: Mapping[bytes, int] | None = None,
    *,
    is_rewritten: bool = False,
) -> SpecialTables:
    """Make the tables of a vocabulary's special tokens and motifs.

    Args:
        vocabulary: the vocabulary; its motifs are matched in the text between special tokens.
        seed: the key of the hash function.
        whole: bytes and ids of tokens that match only as the whole text between two borders.
        is_rewritten: whether letters are replaced by others between the two rounds.

    Raises:
        NotCovered: a token has an option that the kernels do not support, or there are too many.

    Example: "<ab>" (id 7) and "<ac>" (id 8) give the edges "<a" from node 0 to 4, "b>" from 4 to 6,
    "c>" from 4 to 8, and the tokens 7 and 8 at the nodes 6 and 8; node 1 is the root of round two,
    node 2 that of `whole`.
    """
    rounds = _rounds(vocabulary, is_rewritten)
    roots = [*rounds, *[[]] * (MAX_ROUNDS - len(rounds))]
    roots.append([_Pattern(content, token_id, True) for content, token_id in (whole or {}).items()])
    edges, ends = _trie(roots)
    nodes = np.full(max((edge.end for edge in edges), default=WHOLE_ROOT) + 1, NO_ID, np.uint32)
    for node, token in ends.items():
        nodes[node] = token.id
    first = np.zeros((2, 2, 8), np.uint32)
    for own, tokens in zip(first, rounds, strict=False):
        own[0] = _bits({token.content[0] for token in tokens})
        own[1] = _bits({byte for token in tokens for byte in token.content[1:2] or range(256)})
    return SpecialTables(_edge_table(edges, ends, seed), nodes, first, len(rounds))


def _bits(members: set[int]) -> UInt32s:
    """Return uint32[8]: one bit for each byte of a set."""
    is_in = np.isin(np.arange(256), list(members))
    return np.packbits(is_in, bitorder="little").view(np.uint32)


def _rounds(vocabulary: Vocabulary, is_rewritten: bool) -> list[list[_Pattern]]:
    """Return the patterns of each round: in the text, then in the text between the first ones."""
    tokens = [token for token in vocabulary.special_tokens if token.matched]
    for token in tokens:
        _check(token, vocabulary.tokens[token.id])
    is_changed = vocabulary.normalizers and not only_composes(vocabulary)
    if is_changed and any(token.normalized for token in tokens):
        raise NotCovered(f"the normalizer {vocabulary.normalizers[0].kind} rewrites the text")
    rounds = [
        [_Pattern(t.content.encode(), t.id, not t.special) for t in tokens if t.normalized == later]
        for later in (False, True)
    ]
    rounds = [patterns for patterns in rounds if patterns]
    motifs = _motifs(vocabulary)
    if motifs and is_rewritten:
        return [*(rounds or [[]]), motifs]
    if motifs and len(rounds) == 1 and _lie_apart(rounds[0], motifs):
        return [rounds[0] + motifs]
    if motifs and len(rounds) == MAX_ROUNDS:
        raise NotCovered("motifs behind special tokens of two rounds")
    return [*rounds, motifs] if motifs else rounds


def _lie_apart(tokens: Sequence[_Pattern], motifs: Sequence[_Pattern]) -> bool:
    """Return whether no motif can overlap a special token in a text, so that one round finds both.

    The first and the last byte of a token must be in no motif, as in <mask>; then a motif could
    only be inside of it.
    """
    letters = {byte for motif in motifs for byte in motif.content}
    return not any(
        token.content[0] in letters
        or token.content[-1] in letters
        or any(motif.content in token.content for motif in motifs)
        for token in tokens
    )


def _motifs(vocabulary: Vocabulary) -> list[_Pattern]:
    if not vocabulary.motifs:
        return []
    special = {token.id for token in vocabulary.special_tokens}
    ids = {token: i for i, token in enumerate(vocabulary.tokens) if i not in special}
    encoded = [motif.encode() for motif in vocabulary.motifs]
    return [_Pattern(motif, ids[motif], True) for motif in encoded]


def _check(token: SpecialToken, spelled: bytes | None) -> None:
    """Raise NotCovered for a token whose options, bytes or length the kernels do not support."""
    content = repr(token.content)
    if spelled != token.content.encode():
        raise NotCovered(f"the special token {content} stands for other bytes than its own")
    if token.lstrip or token.rstrip:
        raise NotCovered(f"the special token {content} takes white space with it")
    if token.single_word:
        raise NotCovered(f"the special token {content} is found only as a word")
    if len(token.content.encode()) > MAX_BYTES:
        raise NotCovered(f"the special token {content} has more than {MAX_BYTES} bytes")


def _trie(roots: Sequence[Sequence[_Pattern]]) -> tuple[list[_Edge], dict[int, _Pattern]]:
    """Return the edges, and {node: the pattern that ends there}; the first nodes are the roots."""
    root_nodes: list[_Node] = []
    for tokens in roots:
        root_nodes.append(_Node())
        for token in tokens:
            node = root_nodes[-1]
            for byte in token.content:
                node = node.children.setdefault(byte, _Node())
            node.token = token
    edges: list[_Edge] = []
    ends: dict[int, _Pattern] = {}
    number = len(roots) - 1
    waiting = [(root, node) for root, node in enumerate(root_nodes)]
    while waiting:
        begin, node = waiting.pop()
        for byte, child in node.children.items():
            label = bytearray()
            while True:  # To the next fork, or to the longest label.
                label.append(byte)
                number += 1
                if child.token:
                    ends[number] = child.token
                if len(child.children) != 1 or len(label) == MAX_LABEL:
                    break
                ((byte, child),) = child.children.items()
            edges.append(_Edge(begin, bytes(label), number))
            waiting.append((number, child))
    if number >= MAX_NODES:
        raise NotCovered(f"special tokens and motifs need more than {MAX_NODES} nodes")
    return edges, ends


def _edge_table(edges: list[_Edge], ends: dict[int, _Pattern], seed: int) -> UInt32s:
    """Return uint32[slots, 4]: the hash table of edges, by linear probing; it is never full."""
    size = 1 << max(1, int(np.ceil(np.log2(max(1, len(edges)) / LOAD))))
    table = np.zeros((size, 4), np.uint32)
    for node, label, end in edges:
        value = ((node << 8 | label[0]) ^ seed) * 0x9E3779B1 & 0xFFFFFFFF
        value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFFFFFF
        place = value ^ value >> 13
        while table[place % size, 3]:
            place += 1
        count, ending, in_plain = len(label), 0, 0
        for i in range(count):
            if token := ends.get(end - count + i + 1):
                ending |= 1 << i
                in_plain |= token.in_plain << i
        table[place % size, :2] = np.frombuffer(label.ljust(MAX_LABEL, b"\0"), "<u4")
        table[place % size, 2] = node << NODE_SHIFT | count << COUNT_SHIFT | ending
        table[place % size, 3] = end << LAST_SHIFT | in_plain
    return table
