"""GeneticBPE's Algorithm 1 as the paper writes it, in plain Python: the reference of training.

Every pair is counted anew before every merge. Sequences are lists of (begin, end) with the letters
beside; spans are (begin, end, weight in thousandths) in each sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from vocabularies.training.options import TrainingOptions

Token = tuple[int, int, int]
"""An id with begin and end in its sequence; an unknown letter has id -1."""


@dataclass
class Learnt:
    """Merges as (left, right, frequency, bonus, penalty, score), and the sequences after them."""

    merges: list[tuple[int, int, int, int, int, int]]
    tokens: list[bytes]
    rows: list[list[Token]]
    ending: str


def textbook(
    rows: list[str],
    letters: str,
    spans: list[list[tuple[int, int, int]]],
    options: TrainingOptions,
    num_fixed: int = 0,
    first_tokens: tuple[bytes, ...] = (),
    num_bases: int | None = None,
) -> Learnt:
    """Run Algorithm 1; `first_tokens` follow the letters, `num_fixed` tokens are never merged."""
    special = [token.encode() for token in options.special_tokens]
    tokens = [*special, *(letter.encode() for letter in letters), *first_tokens]
    ids = {letter: len(special) + i for i, letter in enumerate(letters)}
    state = [[(ids.get(letter, -1), i, i + 1) for i, letter in enumerate(row)] for row in rows]
    learnt = Learnt([], tokens, state, "")
    bases = sum(map(len, rows)) if num_bases is None else num_bases
    while not learnt.ending:
        is_large = len(tokens) >= options.vocabulary_size
        is_short = options.min_compression is not None and bases * 1000 >= round(
            options.min_compression * 1000
        ) * (num_fixed + sum(map(len, state)))
        if options.stop == "both" and options.min_compression is not None:
            learnt.ending = "both" if is_large and is_short else ""
        else:
            learnt.ending = "size" if is_large else "compression" if is_short else ""
        if not learnt.ending and not _merge(learnt, spans, options):
            learnt.ending = "no pair"
    return learnt


def _merge(
    learnt: Learnt, spans: list[list[tuple[int, int, int]]], options: TrainingOptions
) -> bool:
    counts: dict[tuple[int, int], list[int]] = {}
    for row, row_spans in zip(learnt.rows, spans, strict=True):
        for (left, begin, _), (right, _, end) in pairwise(row):
            if left < 0 or right < 0:
                continue
            figures = counts.setdefault((left, right), [0, 0, 0, end - begin])
            figures[0] += 1
            figures[1] += bonus(begin, end, row_spans)
            figures[2] += penalty(begin, end, row_spans, options.crossing)
    best = None
    for pair, (frequency, inside, crossed, length) in counts.items():
        counted = 1000 * (crossed > 0) if options.penalty == "binary" else crossed
        score = 1_000_000 * frequency + round(1000 * options.motif_weight) * inside
        score -= round(1000 * options.penalty_weight) * counted
        if frequency < options.min_frequency or (score <= 0 and not options.merge_harmful):
            continue
        if options.max_token_length is not None and length > options.max_token_length:
            continue
        if best is None or (score, -pair[0], -pair[1]) > (best[5], -best[0], -best[1]):
            best = (*pair, frequency, inside, crossed, score)
    if best is None:
        return False
    learnt.rows[:] = [_replace(row, best[:2], len(learnt.tokens)) for row in learnt.rows]
    learnt.tokens.append(learnt.tokens[best[0]] + learnt.tokens[best[1]])
    learnt.merges.append(best)
    return True


def bonus(begin: int, end: int, spans: list[tuple[int, int, int]]) -> int:
    """Return the weight of the heaviest span that [begin, end) lies inside."""
    return max((w for b, e, w in spans if b <= begin and end <= e), default=0)


def penalty(begin: int, end: int, spans: list[tuple[int, int, int]], crossing: str) -> int:
    """Return the weight of the heaviest span of which [begin, end) crosses a border."""
    crossed = [
        w
        for b, e, w in spans
        if (begin < b < end or begin < e < end)
        and (crossing == "any" or not (begin <= b and e <= end))
    ]
    return max(crossed, default=0)


def _replace(row: list[Token], pair: tuple[int, ...], merged: int) -> list[Token]:
    """Replace the occurrences of a pair, leftmost first, by the merged id."""
    out: list[Token] = []
    i = 0
    while i < len(row):
        if i + 1 < len(row) and (row[i][0], row[i + 1][0]) == pair:
            out.append((merged, row[i][1], row[i + 1][2]))
            i += 2
        else:
            out.append(row[i])
            i += 1
    return out
