"""The special tokens of a vocabulary as the trie that cuda/special_match.cuh walks.

NumPy only; knows no batch. Tokens that take white space with them, that are words of their own, or
that are looked for after a normalizer are left to the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.job import constant
from gpu.tables import NotCovered
from vocabularies.vocabulary import SpecialToken, Vocabulary

__all__ = ["SpecialTables", "special_tables"]

UInt32s = NDArray[np.uint32]

MAX_BYTES = constant("MAX_SPECIAL")
MAX_NODES = 1 << 22
MAX_LABEL = 8
EDGE_ENDS, EDGE_ORDINARY = constant("EDGE_ENDS"), constant("EDGE_ORDINARY")
NO_ID = 0xFFFFFFFF
LOAD = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class SpecialTables:
    """What the kernels read; see cuda/job.cuh.

    Attributes:
        special_edges: uint32[slots, 4], two words of bytes, node << 8 | flags | number of bytes,
            child; no child is empty.
        special_nodes: uint32[nodes], id of the token that ends there; all ones where none does.
        special_first: uint32[2, 8], one bit for each byte that tokens of a round begin with.
        num_rounds: 0 where no token is looked for; 2 where some are looked for in the text and
            others in what these leave of it.
    """

    special_edges: UInt32s
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

    Example: "<ab>" (id 7) and "<ac>" (id 8) give the edges <a from node 0, b> and c> from the node
    behind it, and the tokens 7 and 8 at the nodes behind these; node 1 is the root of round two.
    """
    tokens = [token for token in vocabulary.special_tokens if token.matched]
    for token in tokens:
        _check(token)
    if tokens and vocabulary.normalizers:
        raise NotCovered(f"the normalizer {vocabulary.normalizers[0].kind} rewrites the text")
    rounds = [[t for t in tokens if t.normalized == normalized] for normalized in (False, True)]
    rounds = [tokens for tokens in rounds if tokens]
    children, ends = _trie(rounds)
    edges = [edge for root in range(len(rounds)) for edge in _edges_below(root, children, ends)]
    nodes = np.full(len(children), NO_ID, np.uint32)
    for node, token in ends.items():
        nodes[node] = token.id
    first = np.zeros((2, 8), np.uint32)
    for bits, tokens in zip(first, rounds, strict=False):
        for byte in {token.content.encode()[0] for token in tokens}:
            bits[byte // 32] |= np.uint32(1 << byte % 32)
    return SpecialTables(_edge_table(edges, ends, seed), nodes, first, len(rounds))


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
) -> tuple[list[dict[int, int]], dict[int, SpecialToken]]:
    """{byte: child} of each node, {node: token that ends there}; the root of round r is node r."""
    children: list[dict[int, int]] = [{}, {}]
    ends: dict[int, SpecialToken] = {}
    for root, tokens in enumerate(rounds):
        for token in tokens:
            node = root
            for byte in token.content.encode():
                if byte not in children[node]:
                    children[node][byte] = len(children)
                    children.append({})
                node = children[node][byte]
            ends[node] = token
    if len(children) > MAX_NODES:
        raise NotCovered(f"the special tokens need more than {MAX_NODES} nodes")
    return children, ends


def _edges_below(
    root: int, children: list[dict[int, int]], ends: dict[int, SpecialToken]
) -> Iterator[tuple[int, bytes, int]]:
    """(node, bytes, node behind them): ways without a fork or a token's end inside, in pieces."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        for byte, child in children[node].items():
            label = bytearray([byte])
            while len(children[child]) == 1 and child not in ends and len(label) < MAX_LABEL:
                ((byte, child),) = children[child].items()
                label.append(byte)
            yield node, bytes(label), child
            waiting.append(child)


def _edge_table(
    edges: list[tuple[int, bytes, int]], ends: dict[int, SpecialToken], seed: int
) -> UInt32s:
    """uint32[slots, 4]: the edges by their hash, with linear probing; never full."""
    size = 1 << max(1, int(np.ceil(np.log2(max(1, len(edges)) / LOAD))))
    table = np.zeros((size, 4), np.uint32)
    for node, label, child in edges:
        value = ((node << 8 | label[0]) ^ seed) * 0x9E3779B1 & 0xFFFFFFFF
        value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFFFFFF
        place = value ^ value >> 13
        while table[place % size, 3]:
            place += 1
        flags = 0
        if child in ends:
            flags = EDGE_ENDS | (0 if ends[child].special else EDGE_ORDINARY)
        table[place % size, :2] = np.frombuffer(label.ljust(MAX_LABEL, b"\0"), "<u4")
        table[place % size, 2:] = node << 8 | flags | len(label), child
    return table
