"""A training worker whose behaviour depends on the vocabulary's name.

slow...    learns half, then waits until it is stopped; completes if it finds its state
deaf...    as slow, but ignores requests to stop
dies...    ends by a signal
quits...   ends without a message
wrong...   says that the corpus is wrong
faulty...  learns bytes at once, off a GPU that failed
other      learns bytes at once, on a GPU
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.support.fake_engine import byte_vocabulary
from vocabularies.model import canonical


def tell(**event: object) -> None:
    """Write a message to the service, as a line."""
    print(json.dumps(event), flush=True)


def main() -> None:
    """Run one job."""
    folder = Path(sys.argv[1])
    name = json.loads((folder / "job.json").read_bytes())["vocabulary"]
    state = folder / "state.npz"
    tell(metrics={"num_sequences": 3, "num_bases": 12})
    if name.startswith("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("quits"):
        return
    if name.startswith("wrong"):
        tell(error={"code": "vocabulary_invalid", "detail": "is wrong", "where": "corpus"})
        return
    if name.startswith(("slow", "deaf")) and not state.exists():
        tell(metrics={"num_merges": 5, "wanted_merges": 10}, progress=0.5)
        while os.read(0, 100):
            pass
        if name.startswith("deaf"):
            time.sleep(60)
        state.write_bytes(b"half")
        return
    if name.startswith("faulty"):
        tell(metrics={"device": "cpu", "device_reason": "is broken", "device_selftest": "failed"})
    else:
        tell(metrics={"device": "cuda", "device_reason": "", "device_selftest": "passed"})
    (folder / "vocabulary").write_bytes(canonical.to_bytes(byte_vocabulary(300)))
    tell(metrics={"num_merges": 10, "seconds": 1.5, "ending": "size"}, progress=1.0)


if __name__ == "__main__":
    main()
