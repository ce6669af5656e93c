"""Makes the table from which cuda/decode/spell_ids.cuh spells ids: the bytes of each token.

NumPy only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.kernels.job import constant
from vocabularies.model.tables import token_table
from vocabularies.model.types import Upstream
from vocabularies.model.vocabulary import Vocabulary

MAX_INLINE = constant("MAX_INLINE")
NO_BYTES, IS_SPECIAL = constant("NO_BYTES"), constant("IS_SPECIAL")


def decode_table(vocabulary: Vocabulary) -> NDArray[np.uint32]:
    """Return uint32[V, 4]: the flags and length of each id, then its bytes or their place.

    Places count in the joined tokens, BpeTables.token_bytes and TokenTable.data.

    Raises:
        NotCovered: the decoder does more than join the bytes of the ids.

    Example: id 5 is "abc", which gives the words 3, 0x636261, 0, 0.
    """
    if isinstance(vocabulary.model, Upstream):
        raise NotCovered(f"ids of kind {vocabulary.kind} are not spelled one after another")
    tokens = token_table(vocabulary)
    table = np.zeros((len(vocabulary), 4), np.uint32)
    table[:, 0] = np.maximum(tokens.lengths, 0)
    table[tokens.lengths < 0, 0] = NO_BYTES
    table[tokens.is_special, 0] |= IS_SPECIAL
    short = np.flatnonzero(tokens.lengths <= MAX_INLINE)
    spelled = b"".join(
        (vocabulary.tokens[i] or b"").ljust(MAX_INLINE, b"\0") for i in short.tolist()
    )
    table[short, 1:] = np.frombuffer(spelled, "<u4").reshape(-1, MAX_INLINE // 4)
    long = tokens.lengths > MAX_INLINE
    table[long, 1] = tokens.offsets[:-1][long]
    return table
