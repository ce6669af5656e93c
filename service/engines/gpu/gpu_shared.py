"""What a GPU does with shared memory; where it does not, the answer is None, and it is counted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered, OutOfMemory
from service.engines.gpu.fallbacks import Fallbacks
from service.engines.gpu.selftest import Gpu
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.vocabulary import Vocabulary


def share_host(
    gpu: Gpu, fallbacks: Fallbacks, file: int, offset: int, num_bytes: int
) -> SharedMemory | None:
    """A part of a file of memory, page-locked; None where it cannot be.

    Raises:
        ValueError: the file is shorter.
    """
    try:
        return gpu.share_host(file, offset, num_bytes)
    except (OutOfMemory, OSError) as error:
        fallbacks.add("out_of_memory", str(error))
        return None


def encode_shared(
    gpu: Gpu, fallbacks: Fallbacks, vocabulary: Vocabulary, rows: SharedRows
) -> NDArray[np.int64] | None:
    """The ids where they are wanted, int64[B + 1]; None where the host is needed."""
    try:
        offsets = gpu.encode_shared(vocabulary, rows)
    except NotCovered as error:
        fallbacks.add("option", f"shared texts need the host: {error}")
        return None
    except (ValueError, IndexError) as error:
        # The way through the host says to the client what is wrong.
        fallbacks.add("shared_memory", f"shared memory cannot be used: {error}")
        return None
    except OutOfMemory as error:
        fallbacks.add("out_of_memory", f"shared texts do not fit: {error}")
        return None
    except Exception as error:
        fallbacks.add("device_error", f"the GPU failed on shared texts: {error!r}")
        fallbacks.failed()
        return None
    fallbacks.succeeded()
    return offsets
