"""Times every bulk call of the GPU engine beside copies of the same bytes over PCIe.

    python -m benchmarks.engine.bus --data FOLDER --out FILE.json

The bytes of a call's arguments and answer are copied between pinned memory and the device, both
ways at once; a call that takes no longer is as fast as PCIe. Answers are compared first:
ids, counts and spans with the CPU engine's, decoded bytes with the text. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine.bus_calls import Call, Memory, calls_of, make_text, right_answers
from benchmarks.engine.first_call import open_device
from benchmarks.support.corpora import CORPORA
from benchmarks.support.machine import device_facts, machine
from benchmarks.support.texts import Text
from benchmarks.support.timing import clocked, summary, take_turns
from gpu.engine import GpuEngine
from gpu.runtime.device import Device
from vocabularies.builtin import load

PACKAGES = ("numpy", "tokenizers", "fastokens", "warptok")
ROUNDS, WARMUPS = 7, 2
MOST_BYTES = 2 << 30  # That a call moves.
SHAPES = ((8192, 8192), (65536, 512), (256, 8192))
"""Rows, and bytes of a row."""
TEXTS = {"gpt2": ("english", "languages"), "o200k_base": ("english",)}
NARROW = {
    "gpt2": np.uint16,
    "hyenadna": np.uint8,
    "nt_v2": np.uint16,
    "dnabert1_3mer": np.uint8,
    "dnabert2": np.uint16,
}
"""The narrowest dtype of ids; those of other vocabularies are int32."""
NAMES = tuple({**TEXTS, **NARROW})


class Bus:
    """Copies between pinned memory and the device, both ways at once."""

    def __init__(self, device: Device, most_bytes: int) -> None:
        self.device = device
        self.inward = device.stream()
        self.outward = device.stream()
        self.on_device = device.allocate(most_bytes)
        self.pinned = device.allocate_pinned(most_bytes)

    def copy(self, num_in: int, num_out: int) -> None:
        """Copy `num_in` bytes to the device and `num_out` bytes from it at the same time."""
        host = self.pinned.ctypes.data
        self.inward.copy_in(self.on_device, host, num_in)
        self.outward.copy_out(host + num_in, self.on_device + num_in, num_out)
        self.inward.synchronize()
        self.outward.synchronize()

    def close(self) -> None:
        """Release the memory."""
        self.device.free(self.on_device)
        self.device.free_pinned(self.pinned)


def measure(bus: Bus, call: Call) -> dict[str, Any]:
    """Check a call's answer, and time the call alternately with copies of as many bytes.

    Raises:
        SystemExit: the answer is wrong.
    """
    for _ in range(2):
        answer = call.run()
        for got, expected in zip(answer, call.right, strict=True):
            if not np.array_equal(got, expected):
                raise SystemExit(f"{call.name}: another answer, nothing is timed")
    num_in, num_out = (sum(a.nbytes for a in arrays) for arrays in (call.given, answer))
    del answer, got
    runs = {"call": clocked(call.run), "copies": clocked(partial(bus.copy, num_in, num_out))}
    samples = take_turns(runs, ROUNDS, warmups=WARMUPS)
    call_s, bus_s = summary(samples["call"]), summary(samples["copies"])
    return {
        "call": call.name,
        "bytes_in": num_in,
        "bytes_out": num_out,
        "seconds": call_s,
        "copies": bus_s,
        "times_the_bus": call_s["median_s"] / bus_s["median_s"],
    }


def work(
    data: Path, names: Collection[str], corpora: Collection[str]
) -> Iterator[tuple[str, type[Any], Text]]:
    """Yield some vocabularies, the narrowest dtype of their ids, and texts of some corpora."""
    for name in names:
        for corpus in TEXTS.get(name, ("bases",)):
            for shape in SHAPES if corpus in corpora else ():
                yield name, NARROW.get(name, np.int32), make_text(corpus, data, *shape)


def table_line(row: dict[str, Any]) -> str:
    """Format a line of the table."""
    call_ms, bus_ms = (1e3 * row[of]["median_s"] for of in ("seconds", "copies"))
    what = f"{row['vocabulary']} {row['corpus']} {row['rows']} rows: {row['call']}"
    return f"{what:64} {call_ms:8.3f} ms, copies {bus_ms:8.3f}: {row['times_the_bus']:6.2f}"


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of text/ and vocab/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpora", nargs="+", default=[*CORPORA, "bases"])
    parser.add_argument("--calls", type=re.compile, default=re.compile(""), help="by their names")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--emulate", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    device = open_device(args.emulate)
    engine, results = GpuEngine(device, 16 << 30, answer_bytes=4 << 30), []
    bus = Bus(device, MOST_BYTES)
    for name, narrow, text in work(args.data, args.only, args.corpora):
        vocabulary = load(name)
        right = right_answers(vocabulary, text)
        rows = len(text.offsets) - 1
        about_text = {"vocabulary": name, "corpus": text.name, "rows": rows}
        with Memory(device) as memory:
            for call in calls_of(engine, memory, vocabulary, text, right, narrow):
                if args.calls.search(call.name):
                    results.append(about_text | measure(bus, call))
                    print(table_line(results[-1]), flush=True)
    about = device_facts(device.info) | machine(PACKAGES)
    args.out.write_text(json.dumps({"machine": about, "results": results}, indent=1))


if __name__ == "__main__":
    main()
