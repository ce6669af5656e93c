"""Changes the letters of rows before encoding: crops, substitutions and reverse complements.

Nothing here uses torch or devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vocabularies.batch.batch import Batch
from vocabularies.sequences.augmentation import Augmentation, augment
from vocabularies.sequences.strand import reverse_complement as complement


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changes to rows: random ones first, then the reverse complement of the result.

    Attributes:
        augmentation: the random changes; None: there are none.
        reverse_complement: whether the reverse complement replaces a row; or bool[B], for each row.
    """

    augmentation: Augmentation | None = None
    reverse_complement: bool | ArrayLike = False

    def part(self, begin: int, end: int) -> RowChanges:
        """Return the changes of some neighbouring rows."""
        augmentation = self.augmentation
        if augmentation is not None:
            augmentation = replace(augmentation, first_row=augmentation.first_row + begin)
        strands = self.reverse_complement
        if not isinstance(strands, bool):
            strands = np.asarray(strands)[begin:end]
        return RowChanges(augmentation, strands)

    def check(self, num_rows: int) -> None:
        """Check that `reverse_complement` has a value for each row.

        Raises:
            ValueError: it has more or fewer values.
        """
        if not isinstance(self.reverse_complement, bool):
            self._find_complemented(num_rows)

    def apply(self, batch: Batch) -> Batch:
        """Change the rows of a batch; return the batch itself where nothing changes.

        Raises:
            ValueError: `reverse_complement` has more or fewer values than there are rows.
        """
        if self.augmentation is not None:
            data, offsets = augment(batch.data, batch.offsets, self.augmentation)
            batch = Batch(data=data, offsets=offsets)
        complemented = self._find_complemented(len(batch))
        if not complemented.any():
            return batch
        data = complement(batch.data, batch.offsets)
        if not complemented.all():
            is_changed = np.repeat(complemented, np.diff(batch.offsets))
            data = np.where(is_changed, data, batch.data)
        return Batch(data=data, offsets=batch.offsets)

    def _find_complemented(self, num_rows: int) -> NDArray[np.bool_]:
        """Find the rows whose reverse complements are encoded, bool[B]."""
        strands = np.asarray(self.reverse_complement, np.bool_)
        if strands.ndim and strands.shape != (num_rows,):
            shape = list(strands.shape)
            raise ValueError(f"reverse_complement is bool{shape}, but there are {num_rows} rows")
        return np.broadcast_to(strands, num_rows)
