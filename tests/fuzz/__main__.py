"""Fuzzes every reader of the service in this process: `python -m tests.fuzz --cases 1000000`.

    --workers 2         processes, each with its part of the cases
    --seed 1            another seed, other cases
    --only 1234         one case again, with what is sent and what comes back

Ends with status 1 after a fault: a 5xx, a refusal of another shape, an input in the log, an id that
is not the reference's, a case that takes seconds, a crash, or memory that grows (memory.py).
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.fuzz.workers import hunted, run_all


def main() -> None:
    """Run the cases and report the faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    if asked.only is not None:
        found = asyncio.run(hunted(asked.seed, asked.only, asked.only + 1, id))
        print(found)
        sys.exit(bool(found["found"]))
    sys.exit(run_all(asked))


if __name__ == "__main__":
    main()
