"""Cuts windows in plain Python, by the text of the mtDNA model's document on tokenization."""

from __future__ import annotations

from typing import Any

PAD, CLS, UNKNOWN = 0, 1, 3
FIRST_KMER = 6


def kmer_id(word: str) -> int:
    """Return the id of a k-mer: its place among all in sorted order, behind six special tokens."""
    if not set(word) <= set("ACGT"):
        return UNKNOWN
    number = 0
    for letter in word:
        number = 4 * number + "ACGT".index(letter)
    return FIRST_KMER + number


def paper_tokens(
    sequence: str, k: int, *, circular: bool = True, junction: str = "prepend"
) -> list[tuple[int, int]]:
    """List (id, position) of the k-mers.

    Of a circle the last k - 1 bases are put in front of the sequence, and the k-mers that begin
    there have positions from length - (k - 1) on. The model's code has these k-mers last.
    """
    sequence = sequence.upper()
    length, extra = len(sequence), k - 1 if circular else 0
    extended = sequence[length - extra :] + sequence
    found = [
        (kmer_id(extended[i : i + k]), (i - extra) % length) for i in range(len(extended) - k + 1)
    ]
    return found if junction == "prepend" else found[extra:] + found[:extra]


def paper_windows(
    sequence: str,
    *,
    window: int,
    stride: int,
    k: int = 6,
    circular: bool = True,
    junction: str = "prepend",
    add_cls: bool = False,
    levels: list[float] | None = None,
) -> list[dict[str, Any]]:
    """List the windows that begin at tokens 0, stride, 2 * stride ...; a circle's windows wrap."""
    tokens = paper_tokens(sequence, k, circular=circular, junction=junction)
    levels = [0.0] * len(sequence) if levels is None else levels
    cut = []
    for start in range(0, len(tokens), stride):
        ids, mask, places, values = [], [], [], []
        if add_cls:
            ids, mask, places, values = [CLS], [1], [0], [0.0]
        for number in range(start, start + window):
            is_token = circular or number < len(tokens)
            token_id, place = tokens[number % len(tokens)] if is_token else (PAD, 0)
            ids.append(token_id)
            mask.append(int(is_token))
            places.append(place)
            values.append(levels[place] if is_token else 0.0)
        cut.append(
            {
                "start": start,
                "input_ids": ids,
                "attention_mask": mask,
                "position_ids": places,
                "het_values": values,
            }
        )
    return cut
