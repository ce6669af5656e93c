"""The special tokens of a vocabulary as the trie that cuda/special_match.cuh walks.

NumPy only; knows no batch. Tokens that take white space with them, that are words of their own, or
that are looked for after a normalizer are left to the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.job import constant
from gpu.tables import NotCovered
from vocabularies.vocabulary import SpecialToken, Vocabulary

__all__ = ["SpecialTables", "special_tables"]

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

MAX_BYTES = constant("MAX_SPECIAL")
MAX_NODES = 1 << 22
NO_ID, ORDINARY = 0xFFFFFFFF, 1 << 31
LOAD = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class SpecialTables:
    """What the kernels read; see cuda/job.cuh.

    Attributes:
        special_edges: uint64[slots], node << 40 | byte << 32 | child; 0 is empty.
        special_nodes: uint32[nodes], id of the token that ends there, with the top bit where it
            counts as ordinary text; all ones where none does.
        special_first: uint32[2, 8], one bit for each byte that tokens of a round begin with.
        num_rounds: 0 where no token is looked for; 2 where some are looked for in the text and
            others in what these leave of it.
    """

    special_edges: UInt64s
    special_nodes: UInt32s
    special_first: UInt32s
    num_rounds: int

    @property
    def special_mask(self) -> int:
        """Slots of the hash table of edges - 1."""
        return len(self.special_edges) - 1


def special_tables(vocabulary: Vocabulary, seed: int) -> SpecialTables:
    """The tables of the tokens that are looked for in a text.

    Raises:
        NotCovered: one of them asks for more than its bytes in the text.

    Example: "ab" (id 7) and "ac" (id 8) give the edges a from node 0 to 2, b from 2 to 3, c from 2
    to 4 and the tokens 7 and 8 at the nodes 3 and 4; node 1 is the root of the second round.
    """
    tokens = [token for token in vocabulary.special_tokens if token.matched]
    for token in tokens:
        _check(token)
    if tokens and vocabulary.normalizers:
        raise NotCovered(f"the normalizer {vocabulary.normalizers[0].kind} rewrites the text")
    rounds = [[t for t in tokens if t.normalized == normalized] for normalized in (False, True)]
    rounds = [tokens for tokens in rounds if tokens]
    edges, ends = _trie(rounds)
    nodes = np.full(len(edges) + 2, NO_ID, np.uint32)
    for node, token in ends.items():
        nodes[node] = token.id | (0 if token.special else ORDINARY)
    first = np.zeros((2, 8), np.uint32)
    for bits, tokens in zip(first, rounds, strict=False):
        for byte in {token.content.encode()[0] for token in tokens}:
            bits[byte // 32] |= np.uint32(1 << byte % 32)
    return SpecialTables(_edge_table(edges, seed), nodes, first, len(rounds))


def _check(token: SpecialToken) -> None:
    content = repr(token.content)
    if token.lstrip or token.rstrip:
        raise NotCovered(f"the special token {content} takes white space with it")
    if token.single_word:
        raise NotCovered(f"the special token {content} is found only as a word")
    if len(token.content.encode()) > MAX_BYTES:
        raise NotCovered(f"the special token {content} has more than {MAX_BYTES} bytes")


def _trie(
    rounds: Sequence[Sequence[SpecialToken]],
) -> tuple[dict[int, int], dict[int, SpecialToken]]:
    """{node << 8 | byte: child} and {node: token that ends there}; round r has the root r."""
    edges: dict[int, int] = {}
    ends: dict[int, SpecialToken] = {}
    for root, tokens in enumerate(rounds):
        for token in tokens:
            node = root
            for byte in token.content.encode():
                node = edges.setdefault(node << 8 | byte, len(edges) + 2)
            ends[node] = token
    if len(edges) + 2 > MAX_NODES:
        raise NotCovered(f"the special tokens need more than {MAX_NODES} nodes")
    return edges, ends


def _edge_table(edges: dict[int, int], seed: int) -> UInt64s:
    """uint64[slots]: the edges by their hash, with linear probing; never full."""
    size = 1 << max(1, int(np.ceil(np.log2(max(1, len(edges)) / LOAD))))
    table = np.zeros(size, np.uint64)
    for key, child in edges.items():
        value = (key ^ seed) * 0x9E3779B1 & 0xFFFFFFFF
        value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFFFFFF
        place = value ^ value >> 13
        while table[place % size]:
            place += 1
        table[place % size] = key << 32 | child
    return table
