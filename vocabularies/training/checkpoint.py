"""Saves the state of a training, so that it can be continued: the tokens and the merges.

The file is an .npz of NumPy arrays and one JSON header; nothing in it is executed. Counts are not
stored, because they are computed from the tokens.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.errors import VocabularyError

VERSION = 1
NUM_FIELDS = 6  # Fields of `merger.Merge`.


@dataclass(frozen=True, slots=True, eq=False)
class TrainingState:
    """A training between two merges.

    Attributes:
        first: `Segmentation.first`.
        merges: the fields of `merger.Merge` for each merge so far.
    """

    first: NDArray[np.signedinteger[Any]]
    merges: Sequence[Sequence[int]]


def write_state(path: Path, key: Mapping[str, object], state: TrainingState) -> None:
    """Write the state of a training to a file, atomically.

    Args:
        path: the file, replaced if it exists.
        key: everything on which the training depends, as JSON values.
        state: the state.

    Raises:
        OSError: the file cannot be written.
    """
    header = json.dumps({"version": VERSION, **key})
    merges = np.array(state.merges, np.int64).reshape(-1, NUM_FIELDS)
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "wb") as file:
        np.savez(file, header=np.array(header), first=state.first, merges=merges)
    os.replace(temporary, path)


def read_state(path: Path, key: Mapping[str, object]) -> TrainingState | None:
    """Read the state of a training from a file; None if the file does not exist.

    Raises:
        VocabularyError: the file is damaged, or it belongs to a training with another key.
        OSError: the file cannot be read.
    """
    if not path.exists():
        return None
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            state = TrainingState(arrays["first"], arrays["merges"].tolist())
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise VocabularyError.at(str(path), f"is not the state of a training: {error}") from error
    expected = json.loads(json.dumps({"version": VERSION, **key}))
    for name, value in expected.items():
        if header.get(name) != value:
            raise VocabularyError.at(str(path), f"is the state of a training with another {name}")
    return state
