"""Looks up the ids of rows with letters, such as N, after which a new sequence of words begins.

It uses torch on any device, without a loop over rows. A row's number of ids depends on its letters,
so the result is ragged, and the caller waits for the numbers of ids. `LetterRule.encode` gives the
same ids.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.letter_rule import LetterRule, RunRule
from gpu.embedding.lookup.torch_lookup import to_device
from vocabularies.model.tables import BASE, OTHER, SINGLE


class RunIds(NamedTuple):
    """The ids of some rows.

    Attributes:
        ids: [T] on the device, the rows one after another, without begin and end tokens.
        counts: int64[b] on the host, the number of ids of each row.
    """

    ids: Tensor
    counts: NDArray[np.int64]


class RunLookUp:
    """The tables of a rule on one device; looks up rows in them."""

    def __init__(
        self, rule: LetterRule, runs: RunRule, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Copy the tables to the device; ids have the dtype int32 or int64."""
        assert rule.word_ids is not None, "only words begin anew"
        self.device = device
        self.dtype = dtype
        self._rule = rule
        self._unknown_id = runs.unknown_id
        self._classes = self._copy(runs.classes)
        self._codes = self._copy(np.maximum(rule.codes, 0), torch.int64)
        self._word_ids = self._copy(rule.word_ids, dtype)
        self._single_ids = self._copy(runs.single_ids, dtype)
        self._rest_ids = None if rule.letter_ids is None else self._copy(rule.letter_ids, dtype)

    def _copy(self, table: NDArray[Any], dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor(table, dtype=dtype, device=self.device)

    def __call__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> RunIds:
        """Look up rows, uint8[N] with int64[b + 1] offsets, on the current stream, and wait.

        Every byte has a class other than UNKNOWN_TO_RULES.
        """
        if not len(data):
            return RunIds(self._word_ids[:0], np.zeros(len(offsets) - 1, np.int64))
        k = self._rule.k
        letters = to_device(data, self.device).int()
        kinds = self._classes[letters]
        places = torch.arange(len(data), device=self.device)
        begins_run = torch.ones_like(kinds, dtype=torch.bool)
        begins_run[1:] = kinds[1:] != kinds[:-1]
        row_begins = offsets[:-1]
        begins_run[to_device(row_begins[row_begins < len(data)], self.device)] = True

        runs = begins_run.cumsum(0) - 1
        run_begins = places[begins_run]
        run_ends = torch.cat([run_begins[1:], places.new_tensor([len(data)])])
        # Letters from the begin of their run, and from its last word's end on.
        from_begin = places - run_begins[runs]
        covered = (run_ends - run_begins) // k * k
        is_base = kinds == BASE
        is_covered = is_base & (from_begin < covered[runs])
        is_word = is_covered & (from_begin % k == 0)
        is_unknown = (kinds == OTHER) & begins_run
        is_single = kinds == SINGLE

        ids = self._single_ids[letters].masked_fill_(is_unknown, self._unknown_id)
        has_id = is_word | is_unknown | is_single
        if self._rest_ids is not None:
            is_rest = is_base & ~is_covered
            ids = torch.where(is_rest, self._rest_ids[letters], ids)
            has_id |= is_rest
        words = places[is_word]
        numbers = torch.zeros_like(words)
        for i in range(k):
            numbers = numbers * self._rule.base + self._codes[letters[words + i]]
        ids[is_word] = self._word_ids[numbers]
        totals = torch.nn.functional.pad(has_id.cumsum(0), (1, 0))
        return RunIds(ids[has_id], np.diff(totals[to_device(offsets, self.device)].cpu().numpy()))
