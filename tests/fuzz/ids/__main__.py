"""Hunts for a differing id: `python -m tests.fuzz.ids --minutes 60 --seed 1`.

real     vocabularies of the data folder and the built-in ones on nasty texts, beside tiktoken,
         tokenizers and the reference
random   vocabularies that were never published, uploaded and asked through the HTTP APIs and the
         engine, beside the reference; with `--engine emulated` or `cuda` what a GPU can do comes
         from there

Prints a line for each difference, with what is needed to see it again, and ends with status 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from random import Random

from tests.fuzz.ids.random_ids import random_hunt
from tests.fuzz.ids.real_ids import real_hunt
from tests.support.each_engine import ENGINES, make_engine


def main() -> None:
    """Run the hunt, and print what differed and how much was compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["real", "random"])
    parser.add_argument("--engine", choices=[*ENGINES], default="cpu", help="of random ones")
    asked = parser.parse_args()
    differences: list[str] = []

    def found(line: str) -> None:
        differences.append(line)
        print(line[:4000], flush=True)

    end = time.monotonic() + 60 * asked.minutes
    texts = ids = vocabularies = rows = 0
    if asked.only != "random":
        until = end if asked.only else time.monotonic() + 30 * asked.minutes
        texts, ids = real_hunt(until, Random(asked.seed), found)
    number = asked.seed
    while asked.only != "real" and time.monotonic() < end and len(differences) < 50:
        more, more_rows = random_hunt(200, number, found, partial(make_engine, asked.engine))
        vocabularies, rows, number = vocabularies + more, rows + more_rows, number + 1
    print(
        f"{len(differences)} differences; real: {texts} texts, {ids} ids; random: "
        f"{vocabularies} vocabularies, {rows} texts"
    )
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
