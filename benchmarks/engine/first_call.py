"""Encodes on the GPU in a fresh process; prints the ids and the time of each step as JSON.

    python -m benchmarks.engine.first_call VOCABULARY [--emulate]

It imports only what the engine needs, because imports are part of the measured time.
"""

from __future__ import annotations

import json
import sys
from time import time
from typing import Any

import numpy as np

TEXT = "The first exact answer: it's 12345 tokens,\n  naïve café, 漢字 and 🙂!\n"
WORKSPACE_BYTES = 1 << 30


def open_device(emulate: bool) -> Any:
    """Open the GPU, or its emulation, which tests the benchmark itself.

    Raises:
        DeviceUnavailable: there is no GPU.
    """
    if emulate:
        from tests.support.emulation.device import EmulatedDevice

        return EmulatedDevice(1 << 34)
    from gpu.runtime.cuda_device import CudaDevice

    return CudaDevice()


def answer(vocabulary: str, emulate: bool) -> dict[str, Any]:
    """Encode the text, and note when each step ends."""
    from gpu.engine import GpuEngine
    from vocabularies.builtin import load

    steps = {"imports": time()}
    loaded = load(vocabulary)
    steps["vocabulary"] = time()
    device = open_device(emulate)
    steps["device"] = time()
    engine = GpuEngine(device, WORKSPACE_BYTES)
    data = np.frombuffer(TEXT.encode(), np.uint8)
    ids, _ = engine.encode_ids(loaded, data, np.array([0, len(data)]))
    steps["ids"] = time()
    return {"ids": ids.tolist(), "steps": steps}


if __name__ == "__main__":
    json.dump(answer(sys.argv[1], "--emulate" in sys.argv), sys.stdout)
